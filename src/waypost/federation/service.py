"""All peers of a service: adding, removing, and one task that follows each."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, MutableSequence, Sequence
from typing import Final

import msgspec

from waypost import limits
from waypost.errors import FetchFailed, InvalidParameter, Unavailable, WaypostError
from waypost.federation.ask import Asker
from waypost.federation.backoff import backoff_seconds
from waypost.federation.copies import ParkedRecord, decode_copy
from waypost.federation.feed import Feed, ServiceName
from waypost.federation.kinds.port import PeerPage, PeerProblem, PeerRefusal
from waypost.federation.kinds.table import DomainLookup, make_kinds
from waypost.federation.peers import Peer, PeerRequest, PeerStore
from waypost.federation.pull import (
    GONE_TYPES,
    Puller,
    check_identity,
    key_fingerprint,
    peer_view,
    refusal_reason,
    verify_bookmark,
)
from waypost.model.federation import peer_of
from waypost.model.principal import Principal
from waypost.registry.doctor import PeerFacts
from waypost.registry.jobs.periodic import ChoreCheck, cancel_all, do_all_chores
from waypost.registry.ports import CommittedChange, OutboundSender
from waypost.registry.registry import Registry
from waypost.responses.federation import FeedEntry, PeerView

log = logging.getLogger("waypost.peers")

_SETTINGS: Final = Principal(subject="settings", via="settings")


class PeerService:
    def __init__(
        self,
        registry: Registry,
        sender: OutboundSender,
        make_feed: Callable[[Callable[[str], bool]], Feed],
        lookup: DomainLookup | None = None,
        may_do: ChoreCheck = do_all_chores,
        wanted: Sequence[PeerRequest] = (),
    ) -> None:
        """`make_feed` makes the feed of this service from the rule that says which peers' records it passes on. `lookup` reads
        the DNS of domains. `may_do` says whether this node of a cluster is to pull from a peer. `wanted` are the peers of the
        settings."""
        self._registry = registry
        self._sender = sender
        self.store = PeerStore(registry)
        self.feed = make_feed(self.store.may_reexport)
        self._kinds = make_kinds(sender, registry.clock, lookup or DomainLookup())
        self.asker = Asker(registry, self.store, self._kinds, self.feed)
        self._pullers: dict[str, Puller] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._may_do = may_do
        self._wanted = {request.name or request.default_name(): request for request in wanted}
        self._own: ServiceName | None = None
        self._reexported = frozenset[str]()  # peers whose agents are passed on
        self._pulls = False
        self._ended: list[asyncio.Task[None]] = []  # that end by themselves
        registry.subscribe(self._on_commit)

    async def start(self, *, pulls: bool) -> None:
        """Only the process that writes pulls; in a cluster one node pulls from each peer."""
        await self.store.load()
        self._own = await self.feed.service_name()
        self._pulls = pulls
        self.store.on_change = self._reconcile
        self._reconcile()
        if pulls:
            self._ended.append(asyncio.create_task(self._apply_settings(), name="peers of the settings"))

    async def stop(self) -> None:
        await cancel_all([*self._tasks.values(), *self._ended])
        self._tasks.clear()
        await self.asker.stop()

    def _on_commit(self, committed: CommittedChange) -> None:
        """An agent that is gone makes room for one of a peer that has the same id."""
        if committed.registration is None:
            for puller in self._pullers.values():
                puller.release(committed.event)

    def _reconcile(self) -> None:
        """Follow the peers that are stored, whichever node added or removed them."""
        peers = {peer.name: peer for peer in self.store.peers()}
        reexported = frozenset(peer.name for peer in peers.values() if peer.reexport)
        if reexported != self._reexported:
            self._reexported = reexported
            self.feed.forget_digest()
        for name in [name for name in self._pullers if name not in peers]:
            self._pullers.pop(name)
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                self._ended.append(task)
        for peer in peers.values():
            if peer.name not in self._pullers:
                self._follow(peer)
            else:
                self._pullers[peer.name].wake()

    # --- Settings --------------------------------------------------------------------------------

    async def _apply_settings(self) -> None:
        """Make the peers of the settings those that are stored. One that cannot be reached is tried again."""
        for peer in self.store.peers():
            if peer.added_by == _SETTINGS.subject and peer.name not in self._wanted:
                await self.remove(_SETTINGS, peer.name)
        pending, failures = dict(self._wanted), 0
        while pending:
            for name, request in list(pending.items()):
                try:
                    await self._apply_setting(name, request)
                except WaypostError as error:
                    log.warning("the peer %s of the settings cannot be added: %s", name, error.message)
                    continue
                del pending[name]
            failures += 1
            await asyncio.sleep(backoff_seconds(failures) if pending else 0)

    async def _apply_setting(self, name: str, request: PeerRequest) -> None:
        known = self.store.find(name)
        if known is not None and known.added_by != _SETTINGS.subject:
            log.warning("the peer %s of the settings was added by %s, which stays", name, known.added_by)
            return
        if known is not None and request.is_same_peer(known):
            changed = request.apply_policy(known)
            if changed != known:
                await self.store.change(_SETTINGS, changed, "peer-change")
            return
        if known is not None:
            await self.remove(_SETTINGS, name)
        await self.add(_SETTINGS, request)

    def _follow(self, peer: Peer) -> Puller:
        if self._own is None:
            raise Unavailable("The registry is starting.", retry_after=1)
        source = self._kinds.sources[peer.kind]
        puller = Puller(self._registry, self.store, source, self._own, peer.name, self._may_do)
        self._pullers[peer.name] = puller
        if peer.pull and self._pulls:
            self._tasks[peer.name] = asyncio.create_task(puller.run(), name=f"peer {peer.name}")
        return puller

    # --- For admins ------------------------------------------------------------------------------

    def list(self) -> tuple[PeerView, ...]:
        return tuple(self._pullers[peer.name].view() for peer in self.store.peers() if peer.name in self._pullers)

    def inspect(self) -> tuple[PeerFacts, ...]:
        """For the doctor."""
        return tuple(
            PeerFacts(
                name=view.name,
                state=view.state,
                error=view.error or "",
                lag_seconds=view.lag_seconds,
                parked=view.parked,
                is_breaker_open=view.breaker == "open",
                has_plain_token=bool(self.store.get(view.name).token) and view.url.startswith("http:"),
            )
            for view in self.list()
        )

    def show(self, name: str) -> PeerView:
        self.store.get(name)
        return self._pullers[name].view()

    async def add(self, principal: Principal, request: PeerRequest, *, is_dry_run: bool = False) -> PeerView:
        """Contact the peer, pin its key, and follow it. A dry run stores nothing."""
        request.check()
        peer = Peer(
            name=request.name or request.default_name(),
            url=request.url.rstrip("/"),
            kind=request.kind or "",
            added_at=self._registry.clock.now(),
            added_by=principal.subject or "anonymous",
            pull=request.pull,
            ask=request.ask,
            max_records=request.max_records,
            reexport=request.reexport,
            visibility=request.visibility,
            namespaces=request.namespaces,
            every_seconds=request.every_seconds,
            token=request.token or "",
        )
        kind, page = await self._probe(peer)
        peer = msgspec.structs.replace(peer, kind=kind, search_url=page.search_url)
        if peer.ask:
            self._check_askable(peer)
        key = "" if page.bookmark is None else page.bookmark.key
        fingerprint = key_fingerprint(key) if key else ""
        if request.key is not None and request.key != fingerprint:
            raise FetchFailed(
                f"The peer has the key {fingerprint}, not the one that was named.",
                path="$.key",
                hint="Ask its operator for the fingerprint of its key.",
                details={"reason": "other_key"},
            )
        peer = msgspec.structs.replace(peer, key=key)
        if is_dry_run:
            return await self._preview(peer, page)
        await self.store.add(principal, peer)
        self._reconcile()
        return self._pullers[peer.name].view()

    async def _preview(self, peer: Peer, first: PeerPage) -> PeerView:
        """What would be taken of a peer, as far as it can be read in a few seconds."""
        own, preview = await self.feed.service_name(), _Preview()
        source, cursor, error = self._kinds.sources[peer.kind], None, None
        try:
            async with asyncio.timeout(limits.PEER_PREVIEW_SECONDS if peer.pull else 0):
                while not preview.is_complete and preview.count <= peer.max_records:
                    page = await source.read(peer, cursor, wait_seconds=0, limit=limits.PEER_BATCH)
                    if page is None or (page.cursor == cursor and not page.is_last):
                        break
                    for entry in page.entries:
                        preview.add(entry, self._refusal_of(peer, entry, own, page.service_id))
                        await asyncio.sleep(0)
                    cursor, preview.is_complete = page.cursor, page.is_last
        except TimeoutError:
            pass
        except PeerProblem as problem:
            error = str(problem)
        return preview.view(peer, first, error)

    def _refusal_of(self, peer: Peer, entry: FeedEntry, own: ServiceName, sender_id: str) -> str:
        """Why an agent of a peer would not be taken; empty if it would."""
        holder = self._registry.entries.find_named(entry.id)
        if holder is not None and peer_of(holder.owner) is None:
            return "local_owner"
        try:
            decode_copy(peer, entry, own, self._registry.clock, peer.visibility, sender_id)
        except (ParkedRecord, WaypostError) as refusal:
            return refusal_reason(refusal)
        return ""

    def _check_askable(self, peer: Peer) -> None:
        if peer.kind not in self._kinds.searches:
            raise InvalidParameter(
                f"{peer.url} is a peer of kind {peer.kind}, which answers no searches.",
                path="$.ask",
                hint="Leave out --ask: its agents are pulled.",
            )
        if peer.kind == "ard" and not peer.search_url:
            raise InvalidParameter(
                f"The catalogs of {peer.url} name no registry that answers searches.",
                path="$.ask",
                hint="Leave out --ask: its agents are pulled.",
            )

    async def _probe(self, peer: Peer) -> tuple[str, PeerPage]:
        """The kind of a peer and its first page. Without a kind, each one is tried."""
        self._sender.check(peer.url, "feed")
        problems: MutableSequence[str] = []
        try:
            async with asyncio.timeout(limits.PEER_PROBE_SECONDS):
                found = await self._try_kinds(peer, problems)
        except TimeoutError:
            found = None
            problems.insert(0, f"It gave no usable answer within {limits.PEER_PROBE_SECONDS:g} s.")
        if found is not None:
            return found
        raise FetchFailed(
            f"{peer.url} is not a registry that can be followed: {problems[0]}",
            path="$.url",
            hint="Name the base URL of a Waypost, ARD or MCP registry, an AI Catalog, a list of A2A cards, or a domain "
            "with an index in the DNS. The setting allow_cidrs permits private networks.",
            details={"reason": "not_a_peer"},
        )

    async def _try_kinds(self, peer: Peer, problems: MutableSequence[str]) -> tuple[str, PeerPage] | None:
        for kind in (peer.kind,) if peer.kind else self._kinds.probed(peer.url):
            try:
                return kind, await self._read_first(peer, kind)
            except PeerProblem as problem:
                problems.append(str(problem))
                if isinstance(problem, PeerRefusal):
                    break  # its public catalog alone is not what was meant
        return None

    async def _read_first(self, peer: Peer, kind: str) -> PeerPage:
        page = await self._kinds.sources[kind].read(peer, None, wait_seconds=0, limit=1)
        if page is None:
            raise PeerProblem("It answered 410 without a cursor.")
        if page.bookmark is not None:
            verify_bookmark(page.bookmark, "")
        if page.service_id == (await self.feed.service_name()).id:
            raise PeerProblem("It is this registry itself.")
        check_identity(self.store, peer.name, page)
        return page

    async def remove(self, principal: Principal, name: str, *, keep: bool = False) -> int:
        """Stop following a peer and remove its records; with `keep` they stay until their leases end. Returns how many
        records were removed."""
        self.store.get(name)
        task = self._tasks.pop(name, None)
        if task is not None:
            await cancel_all([task])
        puller = self._pullers[name]
        removed = 0 if keep else await puller.remove_all()
        await self.store.remove(principal, name)
        self._pullers.pop(name, None)
        if not keep:
            removed += await puller.remove_all()  # what another node stored before it heard of this
        return removed

    async def pause(self, principal: Principal, name: str, *, is_paused: bool) -> PeerView:
        peer = self.store.get(name)
        if peer.paused != is_paused:
            changed = msgspec.structs.replace(peer, paused=is_paused)
            await self.store.change(principal, changed, "peer-pause" if is_paused else "peer-resume")
        if not is_paused:
            await self.store.save_state(name, msgspec.structs.replace(self.store.state(name), error=""))
        self._pullers[name].retry()
        return self._pullers[name].view()

    async def sync(self, name: str) -> PeerView:
        """Pull now, without waiting for the backoff."""
        self.store.get(name)
        self._pullers[name].retry()
        return self._pullers[name].view()


class _Preview:
    """The agents that a dry run has read."""

    def __init__(self) -> None:
        self._refusals: dict[str, str] = {}  # id -> reason; empty: it would be taken
        self.is_complete = False

    @property
    def count(self) -> int:
        return len(self._refusals)

    def add(self, entry: FeedEntry, refusal: str) -> None:
        if entry.type in GONE_TYPES:
            self._refusals.pop(entry.id, None)
        else:
            self._refusals[entry.id] = refusal

    def view(self, peer: Peer, first: PeerPage, error: str | None) -> PeerView:
        taken = [agent_id for agent_id, refusal in self._refusals.items() if not refusal]
        reasons = Counter(refusal for refusal in self._refusals.values() if refusal)
        stated = first.count if first.count is not None and not self.is_complete else 0
        view = peer_view(
            peer,
            reasons,
            state="new",
            records=max(len(taken), stated - reasons.total()),
            error=error,
            is_complete=self.is_complete,
        )
        return msgspec.structs.replace(view, sample=tuple(taken[: limits.PEER_SAMPLE]))
