"""Functions that Go or sprig have and templates here do not, with the reason that a user is told."""

from __future__ import annotations

_REASONS = {
    "it reads the environment of the sensor": "env expandenv",
    "it asks the clock, so that a retry would differ": "now ago",
    "it is random, so that a retry would differ": (
        "uuidv4 randAlphaNum randAlpha randAscii randNumeric randBytes randInt randSeededNumeric shuffle"
    ),
    "it makes keys or passwords, which belong in secrets": (
        "genPrivateKey genCA genCAWithKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert "
        "genSignedCertWithKey buildCustomCert derivePassword htpasswd bcrypt encryptAES decryptAES"
    ),
    "it asks the network": "getHostByName",
    "it depends on the operating system; use `base`, `dir`, `ext`, `clean` or `isAbs`": (
        "osBase osDir osExt osClean osIsAbs"
    ),
    "an event carries no functions": "call",
}
REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
