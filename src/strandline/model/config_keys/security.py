"""Broker keys of authorization, TLS and delegation tokens."""

from __future__ import annotations

from strandline.model.config_keys.key import ConfigKey, Items, OneOf
from strandline.model.config_keys.key_types import PER_BROKER, boolean, class_name, listing, long, password, string

KEYS: tuple[ConfigKey, ...] = (
    string("authorizer.class.name", "", "Authorizer class; empty allows everything."),
    class_name(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Class that determines the principal of a connection.",
        mode=PER_BROKER,
    ),
    string("security.providers", None, "Classes that provide security algorithms."),
    long(
        "connections.max.reauth.ms",
        0,
        "Longest time before a client must authenticate again; 0 disables it.",
    ),
    string(
        "ssl.client.auth",
        "none",
        "Whether clients must, may or need not show a certificate.",
        allowed=OneOf(("required", "requested", "none")),
        mode=PER_BROKER,
    ),
    string(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "Rules that shorten a certificate's distinguished name to a user name.",
    ),
    boolean(
        "ssl.allow.dn.changes",
        False,
        "Whether a new certificate may carry another distinguished name when it is exchanged.",
    ),
    boolean(
        "ssl.allow.san.changes", False, "Whether a new certificate may drop alternative names when it is exchanged."
    ),
    string("ssl.protocol", "TLSv1.3", "TLS version to start from.", mode=PER_BROKER),
    string("ssl.provider", None, "Name of the security provider for TLS.", mode=PER_BROKER),
    listing(
        "ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "TLS versions that are accepted.", allowed=Items(), mode=PER_BROKER
    ),
    listing(
        "ssl.cipher.suites",
        "",
        "Cipher suites that are accepted; empty means the defaults.",
        allowed=Items(),
        mode=PER_BROKER,
    ),
    string("ssl.keystore.type", "JKS", "File format of the key store: JKS, PKCS12 or PEM.", mode=PER_BROKER),
    string("ssl.keystore.location", None, "File with the node's key and certificate.", mode=PER_BROKER),
    password("ssl.keystore.password", "Password of the key store.", mode=PER_BROKER),
    password("ssl.key.password", "Password of the private key.", mode=PER_BROKER),
    password("ssl.keystore.key", "The private key itself, as PEM text.", mode=PER_BROKER),
    password("ssl.keystore.certificate.chain", "The certificate chain itself, as PEM text.", mode=PER_BROKER),
    string("ssl.truststore.type", "JKS", "File format of the trust store: JKS, PKCS12 or PEM.", mode=PER_BROKER),
    string("ssl.truststore.location", None, "File with the certificates that are trusted.", mode=PER_BROKER),
    password("ssl.truststore.password", "Password of the trust store.", mode=PER_BROKER),
    password("ssl.truststore.certificates", "The trusted certificates themselves, as PEM text.", mode=PER_BROKER),
    string("ssl.keymanager.algorithm", "SunX509", "Algorithm of the key manager.", mode=PER_BROKER),
    string("ssl.trustmanager.algorithm", "PKIX", "Algorithm of the trust manager.", mode=PER_BROKER),
    string(
        "ssl.endpoint.identification.algorithm",
        "https",
        "How a server's name is matched with its certificate; empty skips the check.",
        mode=PER_BROKER,
    ),
    string("ssl.secure.random.implementation", None, "Source of random numbers for TLS.", mode=PER_BROKER),
    class_name("ssl.engine.factory.class", None, "Class that makes TLS engines.", mode=PER_BROKER),
    password("delegation.token.secret.key", "Secret that signs delegation tokens; the same on every node."),
    long(
        "delegation.token.max.lifetime.ms",
        604_800_000,
        "Age beyond which a delegation token can no longer be renewed.",
        at_least=1,
    ),
    long(
        "delegation.token.expiry.time.ms",
        86_400_000,
        "How long a delegation token is valid unless it is renewed.",
        at_least=1,
    ),
    long(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        "How often expired delegation tokens are removed.",
        at_least=1,
    ),
)
