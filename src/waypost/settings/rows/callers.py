"""Who calls: tokens of this service and of others, TLS and client certificates."""

from __future__ import annotations

from waypost.model.credentials import ClientSubject, Issuer
from waypost.settings.row import Setting

CALLERS = (
    Setting(
        name="issuer",
        kind="text",
        default="waypost",
        doc="The `iss` of the tokens that are minted and accepted here.",
    ),
    Setting(name="audience", kind="text", default="waypost", doc="The `aud` that a token must carry."),
    Setting(
        name="jwks",
        kind="texts",
        default=(),
        shown_default="none",
        doc="Files or https addresses with the public keys of an outside issuer, whose tokens carry `issuer` and "
        "`audience`.",
    ),
    Setting(
        name="jwt_secret",
        kind="folder",
        shown_default="none",
        doc="A file with the secret by which the outside issuer signs (HS256); at least 32 bytes.",
    ),
    Setting(
        name="jwks_prefix",
        kind="text",
        shown_default="none",
        doc="Put before each subject of the outside issuer, so that it cannot speak for subjects of this service.",
    ),
    Setting(
        name="jwks_admin",
        kind="switch",
        default=False,
        doc="Let tokens of the outside issuer carry the scope `admin`.",
    ),
    Setting(
        name="issuers",
        kind="tables",
        default=(),
        shown_default="none",
        shape=Issuer,
        doc="Several outside issuers, each with `issuer`, `audience`, `jwks`, `secret`, `prefix`, `admin`.",
    ),
    Setting(
        name="tls_cert",
        kind="folder",
        shown_default="none",
        doc="The certificate chain of the service (PEM); turns TLS on, version 1.3. Read again when it changes.",
    ),
    Setting(
        name="tls_key",
        kind="folder",
        shown_default="the key in `tls_cert`",
        doc="The private key of the certificate (PEM).",
    ),
    Setting(
        name="client_ca",
        kind="folder",
        shown_default="none",
        doc="Authorities whose client certificates are believed (PEM).",
    ),
    Setting(
        name="crl",
        kind="folder",
        shown_default="none",
        doc="What those authorities revoked (CRL, PEM or DER). Read again when it changes.",
    ),
    Setting(
        name="client_subjects",
        kind="tables",
        default=(),
        shown_default="none",
        shape=ClientSubject,
        doc="Whom client certificates stand for, each with `subject`, `san` or `fingerprint`, `scopes`.",
    ),
)
