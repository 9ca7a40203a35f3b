"""A service, built from its settings: each step takes the parts that it needs from the steps before."""

from __future__ import annotations

from waypost.app.apis import make_apis, make_hosted_agents, make_security
from waypost.app.application import Application
from waypost.app.cluster import SharedKeyFiles
from waypost.app.core import RotationRecorder, make_chore_check, make_context, make_core, make_publishing_job
from waypost.app.http import make_asgi_root, make_follower, make_http_app, make_monitoring, make_read_check
from waypost.app.messaging import Messaging
from waypost.app.outbound import make_client, make_outbound
from waypost.app.workers import WorkerSlot
from waypost.registry.jobs.periodic import PeriodicJobs, guard_chore
from waypost.registry.ports import Clock, OutboundSender, Store
from waypost.server.auth.authenticator import make_tls
from waypost.settings import Settings


def build(
    settings: Settings,
    *,
    clock: Clock | None = None,
    port: int | None = None,
    store: Store | None = None,
    slot: WorkerSlot | None = None,
    started_at: float | None = None,
    shared_keys: SharedKeyFiles | None = None,
    peer_sender: OutboundSender | None = None,
) -> Application:
    """Make the service of these settings. Nothing is opened before `Application.start`.

    `slot` is the place of this process among several workers, `shared_keys` are the key files that all nodes of a cluster have.
    `peer_sender` sends the requests to peers; by default it is the HTTP client.
    """
    context = make_context(settings, clock, port, slot, started_at)
    client = make_client(context)
    core = make_core(context, client, store)
    outbound = make_outbound(context, core, client)
    security = make_security(context, core, client)
    hosted = make_hosted_agents(context, core)
    apis = make_apis(context, core, outbound, security, hosted, peer_sender or client)
    messaging = Messaging(context, core, outbound, hosted, apis)
    monitoring = make_monitoring(context, core, apis, messaging)
    http_app = make_http_app(context, core, outbound, security, hosted, apis, messaging, monitoring)
    rotations = RotationRecorder(context.keys, core.registry)
    confirm_reads = make_read_check(settings, core)
    follower = make_follower(context, core, apis, http_app)
    may_do = make_chore_check(context, core.store)
    chores = [guard_chore(job, may_do) for job in (*outbound.jobs, make_publishing_job(core))]
    jobs = [*chores, rotations.job] if context.writes else []
    if shared_keys is not None:
        jobs.append(shared_keys.job)
    return Application(
        settings=settings,
        base_url=context.base_url,
        store=core.store,
        registry=core.registry,
        key_value_store=core.key_value_store,
        published_log=core.published_log,
        models=core.models,
        renderer=core.renderer,
        metrics=core.metrics,
        client=client,
        lan=outbound.lan,
        rotations=rotations,
        jobs=PeriodicJobs(jobs),
        shared_keys=shared_keys,
        confirm_reads=confirm_reads,
        issuers=security.issuers,
        invitations=apis.invitations,
        messaging=messaging,
        peers=apis.peers,
        monitoring=monitoring,
        http_app=http_app,
        follower=follower,
        app=make_asgi_root(context, core, security, apis, messaging, http_app, follower, confirm_reads),
        tls=make_tls(settings),
    )
