"""Broker keys of SASL authentication."""

from __future__ import annotations

from strandline.model.config_keys.key import ConfigKey, Items, OneOf
from strandline.model.config_keys.key_types import (
    PER_BROKER,
    boolean,
    class_name,
    double,
    integer,
    listing,
    long,
    password,
    short,
    string,
)

KEYS: tuple[ConfigKey, ...] = (
    listing(
        "sasl.enabled.mechanisms", "GSSAPI", "SASL mechanisms that are accepted.", allowed=Items(), mode=PER_BROKER
    ),
    string("sasl.mechanism.inter.broker.protocol", "GSSAPI", "SASL mechanism between brokers.", mode=PER_BROKER),
    password("sasl.jaas.config", "JAAS login configuration of a listener.", mode=PER_BROKER),
    integer("sasl.server.max.receive.size", 524_288, "Largest SASL token accepted from a client."),
    class_name("sasl.server.callback.handler.class", None, "SASL callback handler of the server."),
    class_name("sasl.client.callback.handler.class", None, "SASL callback handler of the client."),
    class_name("sasl.login.class", None, "Class that logs in."),
    class_name("sasl.login.callback.handler.class", None, "Callback handler of the login."),
    integer("sasl.login.connect.timeout.ms", None, "How long to wait for a connection to the identity provider."),
    integer("sasl.login.read.timeout.ms", None, "How long to wait for a response of the identity provider."),
    long("sasl.login.retry.backoff.ms", 100, "First backoff before a failed login is retried."),
    long("sasl.login.retry.backoff.max.ms", 10_000, "Longest backoff between attempts to log in."),
    double(
        "sasl.login.refresh.window.factor",
        0.8,
        "Share of a credential's life after which it is refreshed.",
        mode=PER_BROKER,
    ),
    double(
        "sasl.login.refresh.window.jitter",
        0.05,
        "Random share of a credential's life added before it is refreshed.",
        mode=PER_BROKER,
    ),
    short(
        "sasl.login.refresh.min.period.seconds",
        60,
        "Shortest time between two refreshes of a credential.",
        mode=PER_BROKER,
    ),
    short(
        "sasl.login.refresh.buffer.seconds",
        300,
        "Time before its end at which a credential should have been refreshed.",
        mode=PER_BROKER,
    ),
    string(
        "sasl.kerberos.service.name", None, "Name under which brokers appear in Kerberos principals.", mode=PER_BROKER
    ),
    string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "Path of the kinit command.", mode=PER_BROKER),
    listing(
        "sasl.kerberos.principal.to.local.rules",
        "DEFAULT",
        "Rules that shorten a Kerberos principal to a user name.",
        allowed=Items(),
        mode=PER_BROKER,
    ),
    double(
        "sasl.kerberos.ticket.renew.window.factor",
        0.8,
        "Share of a ticket's life after which it is renewed.",
        mode=PER_BROKER,
    ),
    double(
        "sasl.kerberos.ticket.renew.jitter",
        0.05,
        "Random share of a ticket's life added before it is renewed.",
        mode=PER_BROKER,
    ),
    long(
        "sasl.kerberos.min.time.before.relogin",
        60_000,
        "Shortest time between two renewals of a ticket.",
        mode=PER_BROKER,
    ),
    string("sasl.oauthbearer.token.endpoint.url", None, "Where tokens are obtained."),
    string("sasl.oauthbearer.scope", None, "Scope that is requested in a token."),
    string("sasl.oauthbearer.scope.claim.name", "scope", "Name of the claim that holds the scope."),
    string("sasl.oauthbearer.sub.claim.name", "sub", "Name of the claim that holds the subject."),
    string("sasl.oauthbearer.client.credentials.client.id", None, "Client id for the client credentials grant."),
    password("sasl.oauthbearer.client.credentials.client.secret", "Client secret for the client credentials grant."),
    string(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        "Algorithm that signs an assertion.",
        allowed=OneOf(("ES256", "RS256"), ignore_case=True),
    ),
    string("sasl.oauthbearer.assertion.claim.aud", None, "Audience written into an assertion."),
    integer(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        300,
        "How long after now an assertion expires.",
        at_least=0,
        at_most=86_400,
    ),
    string("sasl.oauthbearer.assertion.claim.iss", None, "Issuer written into an assertion."),
    boolean("sasl.oauthbearer.assertion.claim.jti.include", False, "Whether an assertion carries an id of its own."),
    integer(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        "How long before now an assertion becomes valid.",
        at_least=0,
        at_most=3_600,
    ),
    string("sasl.oauthbearer.assertion.claim.sub", None, "Subject written into an assertion."),
    string("sasl.oauthbearer.assertion.file", None, "File with a ready assertion."),
    string("sasl.oauthbearer.assertion.private.key.file", None, "File with the key that signs assertions."),
    password("sasl.oauthbearer.assertion.private.key.passphrase", "Password of the key that signs assertions."),
    string(
        "sasl.oauthbearer.assertion.template.file", None, "File with headers and claims to put into every assertion."
    ),
    class_name(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Class that obtains tokens.",
    ),
    class_name(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Class that checks tokens.",
    ),
    string("sasl.oauthbearer.jwks.endpoint.url", None, "Where the keys that verify tokens are found."),
    long("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "How often the keys that verify tokens are fetched."),
    long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "First backoff before the keys are fetched again after a failure.",
    ),
    long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        "Longest backoff between attempts to fetch the keys.",
    ),
    integer("sasl.oauthbearer.clock.skew.seconds", 30, "Allowed difference between clocks."),
    listing("sasl.oauthbearer.expected.audience", "", "Audiences of which a token must name one.", allowed=Items()),
    string("sasl.oauthbearer.expected.issuer", None, "Issuer that a token must name."),
)
