"""Whatever is wrong with a manifest is told in these words, at this place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventbus.errors import ConfigError
from sensors.actions import ACTIONS
from sensors.spec.loader import MAX_BYTES, load_manifest, load_manifests, load_text, make_manifest
from sensors.spec.models import TriggerTemplate
from sensors.spec.problems import MAX_SHOWN, ManifestError
from sensors.spec.suggestions import suggest

GOOD = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata:
  name: orders
spec:
  dependencies:
    - name: paid
      eventSourceName: shop
      eventName: order-paid
    - name: packed
      eventSourceName: depot
      eventName: order-packed
  triggers:
    - template:
        name: ship
        conditions: paid && packed
        log: {}
"""


def _text_of_error(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load_text(text, "sensors.yaml")
    return str(caught.value)


def _with(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"`{old}` must name one place"
    return GOOD.replace(old, new)


def test_a_good_manifest_is_read() -> None:
    (manifest,) = load_text(GOOD, "sensors.yaml")
    assert (manifest.name, manifest.namespace, manifest.generation) == ("orders", "default", 1)
    assert str(manifest.spec.conditions["ship"]) == "packed && paid"
    assert manifest.warnings == ()


# --- one mistake, one message ---------------------------------------------------------------------------------------

KINDS = sorted(f"`{kind}`" for kind, action in ACTIONS.items() if action.in_manifests)
MISTAKES = {
    "misspelt field": (
        _with("eventName: order-paid", "evnetName: order-paid"),
        """\
        sensors.yaml:7:7: `eventName` is missing
            7 |     - name: paid
              |       ^^^^
        sensors.yaml:9:7: unknown field `evnetName`; did you mean `eventName`?
            9 |       evnetName: order-paid
              |       ^^^^^^^^^
        """,
    ),
    "unknown field that resembles nothing": (
        _with("        log: {}", "        log: {volume: 11}"),
        """\
        sensors.yaml:17:15: unknown field `volume`; known are `intervalSeconds`
           17 |         log: {volume: 11}
              |               ^^^^^^
        """,
    ),
    "a field argo-events has and we do not, yet": (
        _with(
            "        log: {}",
            "        http:\n          url: http://h\n          basicAuth:\n            namespace: other\n"
            "            username: {name: s, key: u}\n            password: {name: s, key: p}",
        ),
        """\
        sensors.yaml:20:13: `namespace` is not supported yet
           20 |             namespace: other
              |             ^^^^^^^^^
        """,
    ),
    "a policy that does not fit the action": (
        _with("        log: {}", "        http: {url: http://h}\n      policy: {k8s: {labels: {a: b}}}"),
        """\
        sensors.yaml:18:16: the action `http` has no policy `k8s`; its policy is `status`
           18 |       policy: {k8s: {labels: {a: b}}}
              |                ^^^
        """,
    ),
    "a policy of an action that has none": (
        _with("        log: {}", "        log: {}\n      policy: {status: {allow: [200]}}"),
        """\
        sensors.yaml:18:16: the action `log` has no policy `status`; it has none
           18 |       policy: {status: {allow: [200]}}
              |                ^^^^^^
        """,
    ),
    "a policy in the template that does not fit the action": (
        _with("        log: {}", "        log: {}\n        policy: {status: {allow: [200]}}"),
        """\
        sensors.yaml:18:18: the action `log` has no policy `status`; it has none
           18 |         policy: {status: {allow: [200]}}
              |                  ^^^^^^
        """,
    ),
    "a policy here and there": (
        _with(
            "        log: {}",
            "        http: {url: http://h}\n        policy: {status: {allow: [200]}}\n"
            "      policy: {status: {allow: [201]}}",
        ),
        """\
        sensors.yaml:18:9: the trigger has a `policy` already; leave one out
           18 |         policy: {status: {allow: [200]}}
              |         ^^^^^^
        """,
    ),
    "two policies": (
        _with(
            "        log: {}",
            "        http: {url: http://h}\n      policy:\n        status: {allow: [200]}\n"
            "        k8s: {labels: {a: b}}",
        ),
        """\
        sensors.yaml:20:9: the action `http` has no policy `k8s`; its policy is `status`
           20 |         k8s: {labels: {a: b}}
              |         ^^^
        """,
    ),
    "a status that does not exist": (
        _with("        log: {}", "        http: {url: http://h}\n      policy: {status: {allow: [200, 99]}}"),
        """\
        sensors.yaml:18:38: `allow[1]` must be at least 100
           18 |       policy: {status: {allow: [200, 99]}}
              |                                      ^^
        """,
    ),
    "a rate limit that allows nothing": (
        _with("        log: {}", "        log: {}\n      rateLimit: {unit: Day, requestsPerUnit: 0}"),
        """\
        sensors.yaml:18:25: `unit` must be `Second`, `Minute` or `Hour`, not `Day`
           18 |       rateLimit: {unit: Day, requestsPerUnit: 0}
              |                         ^^^
        sensors.yaml:18:47: `requestsPerUnit` must be at least 1
           18 |       rateLimit: {unit: Day, requestsPerUnit: 0}
              |                                               ^
        """,
    ),
    "a dlqTrigger of a dlqTrigger": (
        _with(
            "        log: {}",
            "        log: {}\n      dlqTrigger:\n        template: {name: again, log: {}}\n"
            "        dlqTrigger: {template: {name: and-again, log: {}}}",
        ),
        """\
        sensors.yaml:20:9: a `dlqTrigger` cannot have one of its own: what it gives up is in the dead-letter topic
           20 |         dlqTrigger: {template: {name: and-again, log: {}}}
              |         ^^^^^^^^^^
        """,
    ),
    "a reason where nothing has failed": (
        _with(
            "        log: {}",
            "        http:\n          url: http://h\n          payload: [{src: {dependencyName: $failure}, dest: x}]",
        ),
        """\
        sensors.yaml:19:44: `$failure` is why an action was given up, and only a `dlqTrigger` gets it
           19 |           payload: [{src: {dependencyName: $failure}, dest: x}]
              |                                            ^^^^^^^^
        """,
    ),
    "a dependency that a dlqTrigger does not find": (
        _with(
            "        log: {}",
            "        log: {}\n      dlqTrigger:\n        template:\n          name: tell\n          http:\n"
            "            url: http://h\n            payload: [{src: {dependencyName: failure}, dest: x}]",
        ),
        """\
        sensors.yaml:23:46: there is no dependency `failure`; did you mean `$failure`?
           23 |             payload: [{src: {dependencyName: failure}, dest: x}]
              |                                              ^^^^^^^
        """,
    ),
    "a pod template with a field that pods have elsewhere": (
        _with("spec:", "spec:\n  template:\n    containers: []"),
        """\
        sensors.yaml:7:5: unknown field `containers`; did you mean `container`?
            7 |     containers: []
              |     ^^^^^^^^^^
        """,
    ),
    "an action argo-events has and we do not": (
        _with("        log: {}", "        pulsar: {topic: orders}"),
        """\
        sensors.yaml:17:9: `pulsar` is not supported; use `custom` with a server that writes to Pulsar
           17 |         pulsar: {topic: orders}
              |         ^^^^^^
        """,
    ),
    "an action that cannot do without something": (
        _with("        log: {}", "        slack: {slackToken: {name: a, key: b}, channel: general}"),
        """\
        sensors.yaml:17:9: `slack` needs `message`, `attachments` or `blocks`: write it, or let a parameter put it in
           17 |         slack: {slackToken: {name: a, key: b}, channel: general}
              |         ^^^^^
        """,
    ),
    "a Python function": (
        _with("        log: {}", "        python: {function: os.system}"),
        """\
        sensors.yaml:17:9: `python` is not supported in manifests yet
           17 |         python: {function: os.system}
              |         ^^^^^^
        """,
    ),
    "missing section": (
        GOOD[: GOOD.index("  triggers:")],
        """\
        sensors.yaml:5:1: `triggers` is missing
            5 | spec:
              | ^^^^
        """,
    ),
    "empty section": (
        GOOD[: GOOD.index("  triggers:")] + "  triggers:\n",
        """\
        sensors.yaml:13:3: `triggers` is empty; it must be a list
           13 |   triggers:
              |   ^^^^^^^^
        """,
    ),
    "empty list": (
        GOOD[: GOOD.index("  triggers:")] + "  triggers: []\n",
        """\
        sensors.yaml:13:3: `triggers` must have at least one entry
           13 |   triggers: []
              |   ^^^^^^^^
        """,
    ),
    "a mapping instead of a list": (
        GOOD[: GOOD.index("  triggers:")] + "  triggers:\n    template: {}\n",
        """\
        sensors.yaml:13:3: `triggers` must be a list, not a mapping
           13 |   triggers:
              |   ^^^^^^^^
        """,
    ),
    "text instead of a mapping": (
        _with("    - template:", "    - ship it\n    - template:"),
        """\
        sensors.yaml:14:7: `triggers[0]` must be a mapping, not text
           14 |     - ship it
              |       ^^^^^^^
        """,
    ),
    "unknown dependency in a condition": (
        _with("paid && packed", "paid && paked"),
        """\
        sensors.yaml:16:29: there is no dependency `paked`; did you mean `packed`?
           16 |         conditions: paid && paked
              |                             ^
        """,
    ),
    "unbalanced parenthesis": (
        _with("paid && packed", "(paid && packed"),
        """\
        sensors.yaml:16:21: this `(` is never closed
           16 |         conditions: (paid && packed
              |                     ^
        """,
    ),
    "two dependencies of one name": (
        _with("    - name: packed", "    - name: paid").replace("paid && packed", "paid"),
        """\
        sensors.yaml:10:13: two dependencies are named `paid`
           10 |     - name: paid
              |             ^^^^
        """,
    ),
    "two triggers of one name": (
        GOOD + "    - template:\n        name: ship\n        log: {}\n",
        """\
        sensors.yaml:19:15: two triggers are named `ship`
           19 |         name: ship
              |               ^^^^
        """,
    ),
    "no action": (
        _with("        log: {}\n", ""),
        f"""\
        sensors.yaml:14:7: the trigger has no action; give it one of {", ".join(KINDS[:-1])} or {KINDS[-1]}
           14 |     - template:
              |       ^^^^^^^^
        """,
    ),
    "two actions": (
        _with("        log: {}", "        log: {}\n        kafka: {topic: out}"),
        """\
        sensors.yaml:17:9: a trigger has exactly one action, and this one has `kafka` and `log`
           17 |         log: {}
              |         ^^^
        """,
    ),
    "an action that is written but empty": (
        _with("        log: {}", "        log:"),
        """\
        sensors.yaml:17:9: `log` is empty; write `log: {}` for one without settings
           17 |         log:
              |         ^^^
        """,
    ),
    "a parameter of an unknown dependency": (
        _with(
            "        log: {}",
            "        http:\n          url: http://h\n          payload: [{src: {dependencyName: pad}}]",
        ),
        """\
        sensors.yaml:19:44: there is no dependency `pad`; did you mean `paid`?
           19 |           payload: [{src: {dependencyName: pad}}]
              |                                            ^^^
        """,
    ),
    "a template with a function that is not there": (
        _with(
            "        log: {}",
            "        http:\n          url: http://h\n          payload:\n"
            "            - src: {dependencyName: paid, dataTemplate: 'Hi {{ uper .Input }}'}",
        ),
        """\
        sensors.yaml:20:64: there is no function `uper`; did you mean `upper`?
           20 |             - src: {dependencyName: paid, dataTemplate: 'Hi {{ uper .Input }}'}
              |                                                                ^
        """,
    ),
    "a template of several lines with a function that is refused": (
        _with(
            "        log: {}",
            "        http:\n          url: http://h\n          dynamicHeaders:\n            - dest: X-Home\n"
            "              src:\n                dependencyName: paid\n                contextTemplate: |\n"
            "                  {{ .Input.id }}\n                  {{ env `HOME` }}",
        ),
        """\
        sensors.yaml:25:22: the function `env` is not allowed: it reads the environment of the sensor
           25 |                   {{ env `HOME` }}
              |                      ^
        """,
    ),
    "a parameter of a trigger for another action": (
        _with(
            "        log: {}",
            "        http: {url: http://h}\n      parameters:\n"
            "        - {src: {dependencyName: paid}, dest: kafka.topic}",
        ),
        """\
        sensors.yaml:19:47: `dest` cannot be `kafka.topic`; what parameters can change is `http.url`, `http.method`, `http.host`, `http.headers.*`, `http.payload.*.src.value`
           19 |         - {src: {dependencyName: paid}, dest: kafka.topic}
              |                                               ^^^^^^^^^^^
        """,  # noqa: E501 - one line of output
    ),
    "a parameter of a trigger that has nothing to change": (
        _with("        log: {}", "        log: {}\n      parameters: [{src: {dependencyName: paid}, dest: log.x}]"),
        """\
        sensors.yaml:18:56: the action `log` has nothing that parameters could change
           18 |       parameters: [{src: {dependencyName: paid}, dest: log.x}]
              |                                                        ^^^^^
        """,
    ),
    "a parameter that would let an event choose a secret": (
        _with(
            "        log: {}",
            "        http:\n          url: http://h\n"
            "          parameters: [{src: {dependencyName: paid}, dest: basicAuth.password.name}]",
        ),
        """\
        sensors.yaml:19:60: `dest` cannot be `basicAuth.password.name`; what parameters can change is `url`, `method`, `host`, `headers.*`, `payload.*.src.value`
           19 |           parameters: [{src: {dependencyName: paid}, dest: basicAuth.password.name}]
              |                                                            ^^^^^^^^^^^^^^^^^^^^^^^
        """,  # noqa: E501
    ),
    "a parameter of a dependency that is not there": (
        _with(
            "        log: {}",
            "        http: {url: http://h}\n      parameters: [{src: {dependencyName: piad}, dest: http.url}]",
        ),
        """\
        sensors.yaml:18:43: there is no dependency `piad`; did you mean `paid`?
           18 |       parameters: [{src: {dependencyName: piad}, dest: http.url}]
              |                                           ^^^^
        """,
    ),
    "YAML's own booleans": (
        _with("eventName: order-paid", "eventName: on"),
        """\
        sensors.yaml:9:18: `eventName` must be text, but YAML reads `on` as true; put it in quotes
            9 |       eventName: on
              |                  ^^
        """,
    ),
    "a number where text is needed": (
        _with("eventName: order-paid", "eventName: 1_000"),
        """\
        sensors.yaml:9:18: `eventName` must be text, but YAML reads `1_000` as a number; put it in quotes
            9 |       eventName: 1_000
              |                  ^^^^^
        """,
    ),
    "text where a boolean is needed": (
        _with("    - template:", "    - atLeastOnce: 'yes'\n      template:"),
        """\
        sensors.yaml:14:20: `atLeastOnce` must be true or false, not text
           14 |     - atLeastOnce: 'yes'
              |                    ^^^^^
        """,
    ),
    "a name Kubernetes would not accept": (
        _with("  name: orders", "  name: Orders"),
        """\
        sensors.yaml:4:9: `name` must be a Kubernetes name: lower-case letters, digits, `-` and `.`, beginning and \
ending with a letter or digit, at most 253 characters
            4 |   name: Orders
              |         ^^^^^^
        """,
    ),
    "a generated name": (
        _with("  name: orders", "  generateName: orders-"),
        """\
        sensors.yaml:3:1: `name` is missing
            3 | metadata:
              | ^^^^^^^^
        sensors.yaml:4:3: `generateName` is not possible: a sensor's topics need a fixed `name`
            4 |   generateName: orders-
              |   ^^^^^^^^^^^^
        """,
    ),
    "names too long for a topic": (
        _with("  name: orders", f"  name: {'o' * 240}"),
        f"""\
        sensors.yaml:4:9: the topic `default-default-{"o" * 240}-invocation` would be 267 characters long and Kafka \
allows 249: shorten the name of the namespace, the bus or the sensor
            4 |   name: {"o" * 92}
              |         {"^" * 92}
        """,
    ),
    "a bus named like a sensor's topic": (
        _with("spec:", "spec:\n  eventBusName: my-action"),
        """\
        sensors.yaml:6:17: a bus cannot be called `my-action`: `action` at the end is for other topics
            6 |   eventBusName: my-action
              |                 ^^^^^^^^^
        """,
    ),
    "a wrong choice": (
        _with("spec:", "spec:\n  startFrom: newest"),
        """\
        sensors.yaml:6:14: `startFrom` must be `latest` or `earliest`, not `newest`
            6 |   startFrom: newest
              |              ^^^^^^
        """,
    ),
    "a number that is too small": (
        _with("spec:", "spec:\n  replicas: 0"),
        """\
        sensors.yaml:6:13: `replicas` must be at least 1
            6 |   replicas: 0
              |             ^
        """,
    ),
    "a bad duration": (
        _with("    - template:", "    - retryStrategy: {duration: 5 minutes}\n      template:"),
        """\
        sensors.yaml:14:33: `duration` must be a duration such as `500ms`, `3s` or `1m30s`
           14 |     - retryStrategy: {duration: 5 minutes}
              |                                 ^^^^^^^^^
        """,
    ),
    "a line break in a header": (
        _with("        log: {}", '        http: {url: "http://h", headers: {X-A: "a\\r\\nX-B: b"}}'),
        """\
        sensors.yaml:17:43: the header `X-A` contains a line break or another character that is not allowed
           17 |         http: {url: "http://h", headers: {X-A: "a\\r\\nX-B: b"}}
              |                                           ^^^
        """,
    ),
    "wrong kind": (
        _with("kind: Sensor", "kind: EventSource"),
        """\
        sensors.yaml:2:7: `kind` cannot be `EventSource`; write `Sensor`
            2 | kind: EventSource
              |       ^^^^^^^^^^^
        """,
    ),
    "wrong version": (
        _with("argoproj.io/v1alpha1", "argoproj.io/v2"),
        """\
        sensors.yaml:1:13: `apiVersion` cannot be `argoproj.io/v2`; write `argoproj.io/v1alpha1` or \
`eventbus.dev/v1alpha1`
            1 | apiVersion: argoproj.io/v2
              |             ^^^^^^^^^^^^^^
        """,
    ),
    "not a mapping": (
        "- a\n- b\n",
        """\
        sensors.yaml:1:1: a manifest must be a mapping with `apiVersion`, `kind`, `metadata` and `spec`
            1 | - a
              | ^
        """,
    ),
    "not even YAML, just a word": (
        "hello\n",
        """\
        sensors.yaml:1:1: a manifest must be a mapping with `apiVersion`, `kind`, `metadata` and `spec`
            1 | hello
              | ^^^^^
        """,
    ),
    "duplicate key": (
        _with("      eventName: order-paid", "      eventName: order-paid\n      name: again"),
        """\
        sensors.yaml:10:7: duplicate key `name`; it is already set in line 7
           10 |       name: again
              |       ^^^^
        """,
    ),
    "a key that YAML takes for something else": (
        _with("  name: orders", "  name: orders\n  labels: {on: 'x'}"),
        """\
        sensors.yaml:5:12: YAML reads the key `on` as true; put it in quotes
            5 |   labels: {on: 'x'}
              |            ^^
        """,
    ),
    "a tag that makes objects": (
        _with("eventName: order-paid", "eventName: !!python/object/apply:os.system ['true']"),
        """\
        sensors.yaml:9:7: `eventName` must be text, not a list
            9 |       eventName: !!python/object/apply:os.system ['true']
              |       ^^^^^^^^^
        sensors.yaml:9:18: the tag `!!python/object/apply:os.system` is not allowed: a manifest is plain data
            9 |       eventName: !!python/object/apply:os.system ['true']
              |                  ^
        """,
    ),
    "a tag that makes functions": (
        _with("eventName: order-paid", "eventName: !!python/name:os.system"),
        """\
        sensors.yaml:9:18: the tag `!!python/name:os.system` is not allowed: a manifest is plain data
            9 |       eventName: !!python/name:os.system
              |                  ^^^^^^^^^^^^^^^^^^^^^^^
        sensors.yaml:9:18: `eventName` must be 1 to 1,024 printable characters without white space at the ends
            9 |       eventName: !!python/name:os.system
              |                  ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    "a tag of another program": (
        _with("eventName: order-paid", "eventName: !secret order-paid"),
        """\
        sensors.yaml:9:18: the tag `!secret` is not allowed: a manifest is plain data
            9 |       eventName: !secret order-paid
              |                  ^^^^^^^^^^^^^^^^^^
        """,
    ),
    "malformed: a colon too many": (
        _with("eventName: order-paid", "eventName: order: paid"),
        """\
        sensors.yaml:9:23: malformed YAML: a `:` is not expected here; check the indentation, or quote the value
            9 |       eventName: order: paid
              |                       ^
        """,
    ),
    "malformed: indentation": (
        _with("      eventName: order-paid", "     eventName: order-paid"),
        """\
        sensors.yaml:9:6: malformed YAML: the indentation does not fit the lines before
            9 |      eventName: order-paid
              |      ^
        """,
    ),
    "malformed: a tab": (
        _with("      eventName: order-paid", "\teventName: order-paid"),
        """\
        sensors.yaml:9:1: malformed YAML: a tab cannot be used for indentation; use spaces
            9 |  eventName: order-paid
              | ^
        """,
    ),
    "malformed: an open quote": (
        _with("eventName: order-paid", 'eventName: "order-paid'),
        """\
        sensors.yaml:9:18: malformed YAML: this quote is never closed
            9 |       eventName: "order-paid
              |                  ^
        """,
    ),
    "malformed: an open bracket": (
        _with("eventName: order-paid", "eventName: [order-paid"),
        """\
        sensors.yaml:9:18: malformed YAML: this bracket is never closed, or a `,` is missing behind it
            9 |       eventName: [order-paid
              |                  ^
        """,
    ),
    "malformed: a character that needs quotes": (
        _with("eventName: order-paid", "eventName: @order"),
        """\
        sensors.yaml:9:18: malformed YAML: a value cannot begin with `@`; put it in quotes
            9 |       eventName: @order
              |                  ^
        """,
    ),
    "malformed: a control character": (
        _with("eventName: order-paid", "eventName: order\x07paid"),
        """\
        sensors.yaml:9:23: malformed YAML: this control character is not allowed
            9 |       eventName: order paid
              |                       ^
        """,
    ),
    "deep nesting": (
        "a: " + "[" * 100 + "]" * 100,
        f"""\
        sensors.yaml:1:67: values are nested more than 64 deep
            1 | {"[" * 87}{"]" * 13}
              | {" " * 50}^
        """,
    ),
    "an alias to nothing": (
        _with("eventName: order-paid", "eventName: *paid"),
        """\
        sensors.yaml:9:18: `*paid` refers to an anchor that does not exist
            9 |       eventName: *paid
              |                  ^^^^^
        """,
    ),
    "an alias to itself": (
        "a: &a [*a]\n",
        """\
        sensors.yaml:1:8: `*a` refers to itself
            1 | a: &a [*a]
              |        ^^
        """,
    ),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_in_these_words(text: str, message: str) -> None:
    assert _text_of_error(text) == dedent(message).rstrip("\n")


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n---\n", "null\n"])
def test_an_empty_manifest_is_refused(text: str) -> None:
    assert _text_of_error(text) == "sensors.yaml: the manifest is empty"


def test_a_yaml_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    assert _text_of_error("\n".join(lines)).startswith(
        "sensors.yaml:4:45: aliases expand to more than 10,000 values; write them out"
    )


def test_a_chain_of_aliases_cannot_nest_deeper_than_brackets_can() -> None:
    lines = ["a0: &a0 []"] + [f"a{n}: &a{n} [[[*a{n - 1}]]]" for n in range(1, 400)]
    assert "values are nested more than 64 deep" in _text_of_error("\n".join(lines))


@pytest.mark.parametrize("written", ["!!int", "!!int x", "!!bool maybe", "!!float y"])
def test_a_value_that_is_not_what_its_tag_says_is_refused(written: str) -> None:
    message = _text_of_error(_with("spec:", f"spec:\n  replicas: {written}"))
    assert message.startswith(f"sensors.yaml:6:13: `{written}` is not a usable value of its kind; put it in quotes")


def test_a_very_long_number_is_refused() -> None:
    message = _text_of_error(_with("spec:", f"spec:\n  replicas: {'9' * 10_000}"))
    assert message.startswith(f"sensors.yaml:6:13: `{'9' * 40}` is not a usable value of its kind; put it in quotes")


# --- conditions are placed to the character -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "line", "column"),
    [
        ("paid && oops", 16, 29),
        ("'paid && oops'", 16, 30),
        ('"paid && oops"', 16, 30),
        ("|\n          paid\n          && oops", 18, 14),
        (">-\n          paid &&\n          oops", 18, 11),
        ("paid &&\n          oops", 17, 11),
        ("'paid\n          && oops'", 17, 14),
        ('"paid \\x26& oops"', 16, 21),  # with escapes inside, the whole text has to do
        ("!!str paid && oops", 16, 21),
    ],
)
def test_an_error_in_a_condition_points_at_the_character(written: str, line: int, column: int) -> None:
    with pytest.raises(ManifestError) as caught:
        load_text(_with("paid && packed", written), "sensors.yaml")
    (problem,) = caught.value.problems
    assert problem.message.startswith("there is no dependency `oops`")
    assert (problem.line, problem.column) == (line, column)


def test_an_error_at_the_end_of_a_condition_points_behind_it() -> None:
    with pytest.raises(ManifestError) as caught:
        load_text(_with("paid && packed", "'paid && '  # and?"), "sensors.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (16, 29)


# --- several mistakes -----------------------------------------------------------------------------------------------


def test_all_mistakes_are_reported_together_in_the_order_of_the_text() -> None:
    text = (
        GOOD.replace("  name: orders", "  nmae: orders")
        .replace("eventSourceName: depot", "eventSourceName: 7")
        .replace("paid && packed", "paid && pakced")
        .replace("log: {}", "log: {intervalSeconds: -1}")
    )
    with pytest.raises(ManifestError) as caught:
        load_text(text, "sensors.yaml")
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (3, "`name` is missing"),
        (4, "unknown field `nmae`; did you mean `name`?"),
        (11, "`eventSourceName` must be text, but YAML reads `7` as a number; put it in quotes"),
        (16, "there is no dependency `pakced`; did you mean `packed`?"),
        (17, "`intervalSeconds` must be at least 0"),
    ]


def test_a_dependency_without_a_name_does_not_put_the_blame_on_conditions() -> None:
    with pytest.raises(ManifestError) as caught:
        load_text(_with("- name: packed", "- nmae: packed"), "sensors.yaml")
    assert [problem.line for problem in caught.value.problems] == [10, 10]


def test_only_the_first_mistakes_are_printed_but_all_are_kept() -> None:
    text = GOOD + "".join(f"    - template: {{name: t{n}, log: {{}}, bad: 1}}\n" for n in range(60))
    with pytest.raises(ManifestError) as caught:
        load_text(text, "sensors.yaml")
    assert len(caught.value.problems) == 60
    assert str(caught.value).count("unknown field `bad`") == MAX_SHOWN
    assert str(caught.value).endswith("\n… and 10 more")


def test_no_message_contains_the_jargon_of_the_validator() -> None:
    for text, _ in MISTAKES.values():
        message = _text_of_error(text).lower()
        for jargon in ("pydantic", "http://errors", "input should", "type=", "validation error", "tuple", "dict"):
            assert jargon not in message


def test_a_manifest_error_is_a_mistake_of_the_user() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text("", "x.yaml")
    assert caught.value.exit_code == 2


# --- warnings -------------------------------------------------------------------------------------------------------


def test_a_dependency_that_no_trigger_uses_is_a_warning() -> None:
    (manifest,) = load_text(_with("paid && packed", "paid || (paid && packed)"), "sensors.yaml")
    (warning,) = manifest.warnings
    assert str(warning).splitlines() == [
        "sensors.yaml:10:13: no trigger uses the dependency `packed`",
        "   10 |     - name: packed",
        "      |             ^^^^^^",
    ]


def test_what_does_nothing_in_argo_events_either_is_a_warning() -> None:
    text = _with("spec:", "spec:\n  errorOnFailedRound: true")
    text += "      dlqTrigger: {template: {name: tell, conditions: paid, log: {}}}\n"
    (manifest,) = load_text(text, "sensors.yaml")
    assert [(warning.line, warning.message) for warning in manifest.warnings] == [
        (6, "this does nothing, as in argo-events: a sensor goes on after a failure"),
        (19, "these conditions do nothing: a `dlqTrigger` is invoked when its trigger's action is given up"),
    ]


def test_a_parameter_that_can_never_have_a_value_is_a_warning() -> None:
    payload = "payload: [{src: {dependencyName: packed}, dest: x}]"
    text = _with("log: {}", f"kafka: {{topic: out, {payload}}}").replace("paid && packed", "paid")
    (manifest,) = load_text(text, "sensors.yaml")
    assert [(warning.line, warning.message) for warning in manifest.warnings] == [
        (10, "no trigger uses the dependency `packed`"),
        (17, "this parameter is always left out: `packed` is not in the trigger's conditions"),
    ]


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_file_with_several_documents_has_several_sensors(tmp_path: Path) -> None:
    file = tmp_path / "sensors.yaml"
    file.write_text(f"---\n{GOOD}---\n---\n{_with('name: orders', 'name: other')}...\n")
    assert [manifest.name for manifest in load_manifests(file)] == ["orders", "other"]
    with pytest.raises(ManifestError, match="there are 2 manifests in this file, and one is expected"):
        load_manifest(file)


def test_two_sensors_of_one_name_in_one_file_are_refused() -> None:
    assert _text_of_error(f"{GOOD}---\n{GOOD}").splitlines()[0] == (
        "sensors.yaml:22:9: two sensors of this file are named `orders`"
    )


def test_mistakes_of_all_documents_are_reported(tmp_path: Path) -> None:
    bad = _with("log: {}", "log: {x: 1}")
    message = _text_of_error(f"{bad}---\n{bad}")
    assert "sensors.yaml:17:15: unknown field `x`" in message
    assert "sensors.yaml:35:15: unknown field `x`" in message


def test_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "sensor.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_manifest(file).name == "orders"


def test_positions_count_characters_and_not_bytes(tmp_path: Path) -> None:
    file = tmp_path / "sensor.yaml"
    file.write_text(_with("        log: {}", "        log: {'größe ✓': 1, volume: 2}"), encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        load_manifest(file)
    assert [problem.column for problem in caught.value.problems] == [15, 29]


def _directory(path: Path) -> None:
    path.mkdir()


def _latin1(path: Path) -> None:
    path.write_bytes(GOOD.replace("orders", "ordérs").encode("latin-1"))


def _ten_megabytes(path: Path) -> None:
    with path.open("w") as stream:
        stream.write(GOOD)
        stream.write("#" * 10_000_000)


def _just_too_large(path: Path) -> None:
    path.write_text(GOOD + "#" * (MAX_BYTES + 1 - len(GOOD)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "cannot be read: No such file or directory"),
        (_directory, "cannot be read: Is a directory"),
        (_latin1, "is not UTF-8 text: see line 4"),
        (_ten_megabytes, "is larger than 1024 KiB, which no manifest may be"),
        (_just_too_large, "is larger than 1024 KiB, which no manifest may be"),
    ],
)
def test_a_file_that_cannot_be_a_manifest_is_refused(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "sensor.yaml"
    make(path)
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert str(caught.value) == f"{path}: {message}"


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(ManifestError, match="is larger than 1024 KiB"):
        load_manifest("/dev/zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sensor.yaml"
    path.touch(mode=0o000)
    with pytest.raises(ManifestError, match="cannot be read: Permission denied"):
        load_manifest(path)


def test_the_largest_manifest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sensor.yaml"
    path.write_text(GOOD + "#" * (MAX_BYTES - len(GOOD)))
    assert load_manifest(path).name == "orders"


# --- YAML that Kubernetes users write -------------------------------------------------------------------------------


def test_anchors_and_merge_keys_work() -> None:
    text = GOOD.replace("    - name: paid\n", "    - &base\n      name: paid\n").replace(
        "      eventSourceName: depot\n      eventName: order-packed\n",
        "      <<: *base\n      eventName: order-packed\n",
    )
    (manifest,) = load_text(text, "sensors.yaml")
    assert [
        (dependency.name, dependency.eventSourceName, dependency.eventName) for dependency in manifest.spec.dependencies
    ] == [("paid", "shop", "order-paid"), ("packed", "shop", "order-packed")]


def test_a_bare_date_is_text() -> None:
    (manifest,) = load_text(_with("eventName: order-paid", "eventName: 2026-11-16"), "sensors.yaml")
    assert manifest.spec.dependencies[0].eventName == "2026-11-16"


# --- manifests made by a program ------------------------------------------------------------------------------------


def _data(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "eventbus.dev/v1alpha1",
        "kind": "Sensor",
        "metadata": {"name": "orders"},
        "spec": {
            "dependencies": [{"name": "paid", "eventSourceName": "shop", "eventName": "order-paid"}],
            "triggers": [{"template": {"name": "ship", "log": {}}}],
            **spec,
        },
    }


def test_a_manifest_can_be_made_from_a_mapping() -> None:
    assert make_manifest(_data()).spec.triggers[0].name == "ship"


def test_the_mistakes_of_a_program_are_named_by_field() -> None:
    data = _data(
        triggers=[{"template": {"name": "ship", "conditions": "paid && oops", "log": {}, "x": 1}}], replicas=True
    )
    with pytest.raises(ManifestError) as caught:
        make_manifest(data)
    names = [name for name in TriggerTemplate.model_fields if name not in TriggerTemplate.hidden]
    assert str(caught.value).splitlines() == [
        "spec.triggers[0].template.conditions: there is no dependency `oops`; known are `paid` (column 9)",
        f"spec.triggers[0].template.x: unknown field `x`; {suggest('x', names)}",
        "spec.replicas: `replicas` must be a whole number, not true or false",
    ]


# --- nothing breaks it ----------------------------------------------------------------------------------------------

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
_SNIPPETS = st.sampled_from(
    [
        *"-:?[]{}\"'#%\n\t~\\(,\x00\u2028🚀",
        "&a ",
        "*a",
        "<<: *a\n",
        "- ",
        ": ",
        "!!set ",
        "!x ",
        "|\n",
        ">-\n",
        "---\n",
        "...\n",
        "yes",
        "1e9",
        "0o7",
        "&&",
        "  ",
    ]
)


@settings(UNHURRIED, max_examples=300)
@given(st.integers(0, len(GOOD)), st.integers(0, 20), st.lists(_SNIPPETS, max_size=4))
def test_whatever_is_in_the_file_the_answer_is_a_manifest_or_a_list_of_problems(
    start: int, length: int, snippets: list[str]
) -> None:
    text = GOOD[:start] + "".join(snippets) + GOOD[start + length :]
    manifests, problems = [], []
    try:
        manifests = load_text(text, "sensors.yaml")
    except ManifestError as error:
        problems = error.problems
    assert bool(manifests) != bool(problems)
    assert all(problem.line is None or problem.excerpt for problem in problems)
