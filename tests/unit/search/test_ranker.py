from __future__ import annotations

import pytest

from support.agents import PUBLIC, agent, ask, ids, opened
from support.vectors import naughty_strings
from waypost.model.query import Query
from waypost.search.ranker import HybridRanker

WEATHER = agent("weather", "Weather Oracle", "Forecasts rain and storms for a city.", tags=["weather", "forecast"])
INVOICE = agent(
    "invoice",
    "Invoice Desk",
    "Reads invoices and books payments.",
    tags=["finance"],
    examples=["Translate an invoice into German"],
    protocols=["mcp"],
)
TRAVEL = agent("travel", "TripPlanner", "Books flights and hotels in any city.", tags=["travel", "forecast"])

both = pytest.mark.parametrize("maintained", [False, True], ids=["fresh", "committed"])


@pytest.fixture(params=[False, True], ids=["fresh", "committed"])
def ranker(request: pytest.FixtureRequest) -> HybridRanker:
    return opened(WEATHER, INVOICE, TRAVEL, maintained=request.param)


def test_the_best_matching_agent_comes_first(ranker: HybridRanker) -> None:
    assert ids(ask(ranker, "will it rain in the city?"))[0] == "weather"
    assert ids(ask(ranker, "translating invoices")) == ["invoice"]
    assert ids(ask(ranker, "trip")) == ["travel"]


def test_scores_lie_between_0_and_1_and_fall(ranker: HybridRanker) -> None:
    scores = [hit.score for hit in ask(ranker, "books rain in a city")]
    assert len(scores) == 3
    assert all(0 < score < 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


def test_a_query_of_words_that_barely_occur_scores_low_even_at_the_top(ranker: HybridRanker) -> None:
    good = ask(ranker, "weather forecast")[0].score
    poor = ask(ranker, "city zebra quantum haiku obsidian")[0].score
    assert poor < 0.15 < 0.3 < good


def test_required_tags_must_all_be_present(ranker: HybridRanker) -> None:
    assert ids(ask(ranker, "city", required_tags=("Forecast",))) == ["weather", "travel"]
    assert ids(ask(ranker, "city", required_tags=("forecast", "travel"))) == ["travel"]
    assert ask(ranker, "city", required_tags=("forecast", "unknown")) == ()


def test_an_excluded_tag_is_never_an_answer(ranker: HybridRanker) -> None:
    assert ids(ask(ranker, "city", excluded_tags=("WEATHER",))) == ["travel"]


def test_any_of_the_protocols_is_enough(ranker: HybridRanker) -> None:
    assert ids(ask(ranker, "books", protocols=("MCP", "gopher"))) == ["invoice"]
    assert ask(ranker, "books", protocols=("gopher",)) == ()


def test_a_preferred_tag_lifts_but_does_not_filter(ranker: HybridRanker) -> None:
    plain = {hit.id: hit.score for hit in ask(ranker, "city")}
    lifted = {hit.id: hit.score for hit in ask(ranker, "city", preferred_tags=("travel", "none"))}
    assert lifted["travel"] > plain["travel"]
    assert lifted["weather"] == plain["weather"]
    assert ids(ask(ranker, "city", preferred_tags=("travel",)))[0] == "travel"


def test_tags_answer_without_a_word(ranker: HybridRanker) -> None:
    assert ids(ask(ranker, "", preferred_tags=("forecast", "weather"))) == ["weather", "travel"]
    assert ids(ask(ranker, "the", required_tags=("forecast",))) == ["travel", "weather"]
    assert ids(ask(ranker, "", required_tags=("forecast",), preferred_tags=("weather",))) == ["weather", "travel"]


def test_required_tags_without_a_matching_word_answer_with_low_scores(ranker: HybridRanker) -> None:
    hits = ask(ranker, "zebra", required_tags=("forecast",))
    assert ids(hits) == ["travel", "weather"]
    assert all(hit.score < 0.1 for hit in hits)


def test_matching_words_come_before_the_rest_of_the_filtered(ranker: HybridRanker) -> None:
    hits = ask(ranker, "storm", required_tags=("forecast",))
    assert ids(hits) == ["weather", "travel"]
    assert hits[0].score > 0.2 > hits[1].score


def test_protocols_alone_answer_by_id(ranker: HybridRanker) -> None:
    assert ids(ask(ranker, "", protocols=("https",))) == ["travel", "weather"]


def test_a_query_without_words_and_tags_gets_a_warning(ranker: HybridRanker) -> None:
    ranking = ranker.rank(Query(text="the of and"), PUBLIC, alive=lambda _: True, now=0.0)
    assert ranking.hits == ()
    assert ranking.warnings


@both
@pytest.mark.parametrize("status", ["inactive", "suspended"])
def test_inactive_and_suspended_agents_are_never_an_answer(status: str, maintained: bool) -> None:
    ranker = opened(WEATHER, agent("other", "Weather", "Weather.", status=status), maintained=maintained)
    assert ids(ask(ranker, "weather")) == ["weather"]
    ranker.index.put(agent("weather", "Weather", "Weather.", status=status))
    assert ask(ranker, "weather") == ()


@both
def test_deprecated_agents_rank_lower(maintained: bool) -> None:
    twins = [
        agent(each, "Weather", "Weather.", status=status) for each, status in (("a", "deprecated"), ("b", "testing"))
    ]
    hits = ask(opened(*twins, maintained=maintained), "weather")
    assert ids(hits) == ["b", "a"]
    assert hits[1].score == pytest.approx(hits[0].score / 2, abs=1e-3)


@both
def test_deprecated_agents_do_not_crowd_out_others(maintained: bool) -> None:
    crowd = [agent(f"a{number:03}", "Weather weather", "Weather.", status="deprecated") for number in range(100)]
    ranker = opened(*crowd, agent("live", "Storms", "Weather, weather."), maintained=maintained)
    assert ids(ask(ranker, "weather", limit=3))[0] == "live"
    tagged = [agent(f"t{number:03}", tags=["x"], status="deprecated") for number in range(100)]
    ranker = opened(*tagged, agent("z", tags=["x"]), maintained=maintained)
    assert ids(ask(ranker, "", required_tags=("x",), limit=3))[0] == "z"


@both
def test_tags_alone_answer_where_many_copies_carry_them(maintained: bool) -> None:
    text = "Reads the gauges of a harbour and tells sailors when the water rises, falls and stands still for an hour."
    copies = [agent(f"copy-{number:02}", f"Copy {number}", text, tags=["tides"]) for number in range(20)]
    other = agent("other", "Moon", "Tells how the moon pulls the sea.", tags=["tides"])
    ranker = opened(*copies, other, maintained=maintained)
    for words in ("", "the of and"):
        shown = ids(ask(ranker, words, preferred_tags=("tides",)))
        assert len(shown) == 10
        assert "other" in shown


@both
def test_equal_scores_have_the_same_order_in_every_insertion_order(maintained: bool) -> None:
    count = 300 if maintained else 60  # of more recent changes a query looks at some, and says so
    clones = [agent(f"clone-{number:03}", "Weather", "Weather.") for number in range(count)]
    ranker = opened(*reversed(clones), maintained=maintained)
    other = opened(*clones, maintained=maintained)
    assert ids(ask(ranker, "weather", limit=5)) == ids(ask(other, "weather", limit=5))


@both
def test_agents_that_no_longer_live_are_passed_over_and_not_counted(maintained: bool) -> None:
    clones = [agent(f"clone-{number:03}", "Weather", "Weather.") for number in range(300)]
    ranker = opened(*clones, maintained=maintained)
    query = Query(text="weather", limit=5)
    if not maintained:
        assert ranker.index.is_behind(PUBLIC)
        ranker.index.prepare_for(PUBLIC, query)
    ranking = ranker.rank(query, PUBLIC, alive=lambda each: each >= "clone-200", now=0.0)
    assert len(ranking.hits) == 5
    assert min(ids(ranking.hits)) >= "clone-200"


@both
def test_a_ranking_has_at_most_limit_hits(maintained: bool) -> None:
    clones = [agent(f"clone-{number:03}", "Weather", "Weather.", tags=["x"]) for number in range(30)]
    ranker = opened(*clones, maintained=maintained)
    assert len(ask(ranker, "weather", limit=7)) == 7
    assert len(ask(ranker, "zebra", required_tags=("x",), limit=7)) == 7
    assert len(ask(ranker, "weather", limit=100)) == 30


@both
def test_chinese_text_is_found(maintained: bool) -> None:
    ranker = opened(WEATHER, agent("zh", "天气助手", "查询城市的天气预报。"), maintained=maintained)
    assert ids(ask(ranker, "明天的天气")) == ["zh"]


@pytest.mark.parametrize("maintained", [False, True])
def test_no_naughty_string_breaks_a_question(maintained: bool) -> None:
    texts = naughty_strings()
    ranker = opened(*(agent(f"a{number}", text or "x", text, tags=[text]) for number, text in enumerate(texts)))
    if maintained:
        ranker.index.maintain(1)
    for text in [*texts, "\ud800", "a" * 5000, "+id:* OR (", '"']:
        ask(ranker, text)
        ask(ranker, "x", required_tags=(text,), preferred_tags=(text,), excluded_tags=("\udfff",), protocols=(text,))


def test_nothing_in_a_query_is_syntax(ranker: HybridRanker) -> None:
    assert ids(ask(ranker, "+weather -oracle AND NOT storm* id:weather")) == ids(ask(ranker, "weather oracle storm id"))


@both
def test_an_agent_that_is_ruled_out_by_its_name_comes_after_one_that_fits(maintained: bool) -> None:
    postgres = agent("postgres", "Postgres Inspector", "Answers questions about a database and runs a query.")
    other = agent("sqlite", "Table Reader", "Runs a query on a file.")
    ranker = opened(postgres, other, maintained=maintained)
    assert ids(ask(ranker, "run a query on a database"))[0] == "postgres"
    assert ids(ask(ranker, "run a query on a database, but not postgres"))[0] == "sqlite"
    described = agent("described", "Reader", "Runs a query on a database such as Postgres.")
    assert ids(ask(opened(described, other), "run a query on a database, but not postgres"))[0] == "described"
