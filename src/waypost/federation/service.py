"""All peers of a service: adding, removing, and one task that follows each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from waypost.errors import FetchFailed
from waypost.federation.feed import Feed
from waypost.federation.peers import Peer, PeerRequest, PeerStore
from waypost.federation.pull import Puller, key_fingerprint, verify_bookmark
from waypost.federation.sources import PeerPage, PeerProblem, PeerRefusal, make_sources
from waypost.model.principal import Principal
from waypost.registry.jobs.periodic import cancel_all
from waypost.registry.ports import OutboundSender
from waypost.registry.registry import Registry
from waypost.responses.federation import PeerView


class PeerService:
    def __init__(
        self, registry: Registry, sender: OutboundSender, make_feed: Callable[[Callable[[str], bool]], Feed]
    ) -> None:
        """`make_feed` makes the feed of this service from the rule that says which peers' records it passes on."""
        self._registry = registry
        self._sender = sender
        self.store = PeerStore(registry)
        self.feed = make_feed(self.store.may_reexport)
        self._sources = make_sources(sender, registry.clock)
        self._pullers: dict[str, Puller] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *, pulls: bool) -> None:
        """Only the process that writes pulls."""
        await self.store.load()
        if pulls:
            for peer in self.store.peers():
                await self._follow(peer)

    async def stop(self) -> None:
        await cancel_all(list(self._tasks.values()))
        self._tasks.clear()

    async def _follow(self, peer: Peer) -> Puller:
        own = await self.feed.service_name()
        puller = Puller(self._registry, self.store, self._sources[peer.kind], own, peer.name)
        self._pullers[peer.name] = puller
        if peer.pull:
            self._tasks[peer.name] = asyncio.create_task(puller.run(), name=f"peer {peer.name}")
        return puller

    # --- For admins ------------------------------------------------------------------------------

    def list(self) -> tuple[PeerView, ...]:
        return tuple(self._pullers[peer.name].view() for peer in self.store.peers() if peer.name in self._pullers)

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
            reexport=request.reexport,
            visibility=request.visibility,
            namespaces=request.namespaces,
            every_seconds=request.every_seconds,
            token=request.token or "",
        )
        kind, page = await self._probe(peer)
        peer = msgspec.structs.replace(peer, kind=kind)
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
            return _preview(peer, page, fingerprint)
        await self.store.add(principal, peer)
        return (await self._follow(peer)).view()

    async def _probe(self, peer: Peer) -> tuple[str, PeerPage]:
        """The kind of a peer and its first page. Without a kind, each one is tried."""
        self._sender.check(peer.url, "feed")
        problems = []
        for kind in (peer.kind,) if peer.kind else self._sources:
            try:
                return kind, await self._read_first(peer, kind)
            except PeerProblem as problem:
                problems.append(str(problem))
                if isinstance(problem, PeerRefusal):
                    break  # its public catalog alone is not what was meant
        raise FetchFailed(
            f"{peer.url} is not a registry that can be followed: {problems[0]}",
            path="$.url",
            hint="Name the base URL of a Waypost or MCP registry, or of an AI Catalog. "
            "The setting allow_cidrs permits private networks.",
            details={"reason": "not_a_peer"},
        )

    async def _read_first(self, peer: Peer, kind: str) -> PeerPage:
        page = await self._sources[kind].read(peer, None, wait_seconds=0, limit=1)
        if page is None:
            raise PeerProblem("It answered 410 without a cursor.")
        if page.bookmark is not None:
            verify_bookmark(page.bookmark, "")
        if page.service_id == (await self.feed.service_name()).id:
            raise PeerProblem("It is this registry itself.")
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
        return removed

    async def pause(self, principal: Principal, name: str, *, is_paused: bool) -> PeerView:
        peer = self.store.get(name)
        if peer.paused != is_paused:
            changed = msgspec.structs.replace(peer, paused=is_paused)
            await self.store.change(principal, changed, "peer-pause" if is_paused else "peer-resume")
        puller = self._pullers[name]
        if not is_paused:
            puller.error = None
        puller.wake()
        return puller.view()

    async def sync(self, name: str) -> PeerView:
        """Pull now, without waiting for the backoff."""
        self.store.get(name)
        self._pullers[name].wake()
        return self._pullers[name].view()


def _preview(peer: Peer, page: PeerPage, fingerprint: str) -> PeerView:
    return PeerView(
        name=peer.name,
        url=peer.url,
        kind=peer.kind,
        state="new",
        last_contact=None,
        lag_seconds=None,
        records=len(page.entries) if page.count is None else page.count,
        error=None,
        pull=peer.pull,
        reexport=peer.reexport,
        visibility=peer.visibility,
        namespaces=peer.namespaces,
        every_seconds=peer.every_seconds,
        key=fingerprint,
        parked=0,
        complete=False,
    )
