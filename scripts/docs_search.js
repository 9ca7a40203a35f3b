// The search of the static documentation, instead of the one of MkDocs: that needs a worker and a request, which browsers
// refuse to pages that are opened from a folder, and it drops what is typed before its index is ready.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const input = document.getElementById("mkdocs-search-query");
  const results = document.getElementById("mkdocs-search-results");
  let loading = null; // a promise of the function that searches

  const load = (path) =>
    new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${base_url}/search/${path}`;
      script.onload = resolve;
      script.onerror = reject;
      document.head.append(script);
    });

  const prepare = async () => {
    await Promise.all([load("lunr.js"), load("search_index.js")]);
    const pages = new Map(searchIndex.docs.map((page) => [page.location, page]));
    const index = lunr(function () {
      this.field("title", { boost: 5 });
      this.field("text");
      this.ref("location");
      searchIndex.docs.forEach((page) => this.add(page));
    });
    // Words that have to occur, the last of them perhaps unfinished; no syntax of Lunr, such as `:` in a URL.
    return (text) => {
      const words = lunr.tokenizer(text.toLowerCase()).map(String);
      const found = index.query((query) =>
        words.forEach((word, place) => {
          query.term(word, { boost: 10 });
          if (place === words.length - 1) query.term(word, { wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });
        }),
      );
      return found.slice(0, 30).map((each) => pages.get(each.ref));
    };
  };

  const show = (pages) => {
    const articles = pages.map((page) => {
      const article = document.createElement("article");
      const heading = article.appendChild(document.createElement("h3"));
      const link = heading.appendChild(document.createElement("a"));
      link.href = `${base_url}/${page.location}`;
      link.textContent = page.title;
      article.appendChild(document.createElement("p")).textContent = page.text.slice(0, 200);
      return article;
    });
    results.replaceChildren(...(articles.length ? articles : [results.dataset.noResultsText]));
  };

  const search = async () => {
    loading ??= prepare();
    const find = await loading;
    if (input.value.trim().length < 2) results.replaceChildren();
    else show(find(input.value));
  };

  input.addEventListener("focus", () => (loading ??= prepare()));
  input.addEventListener("input", search);
  input.form?.addEventListener("submit", (event) => event.preventDefault());
});
