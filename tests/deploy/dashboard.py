"""What a dashboard's JSON must be, by the types of Grafana's own SDK: it reads a dashboard and
writes it again; what it does not know is lost on the way."""
import enum
import json
import typing

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()


def panels(dashboard):
    """All but the rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def filled(query, values):
    for name, value in values.items():
        query = query.replace(name, value)
    return query


def _lost(sent, got, path):
    """What of the one is not, or not the same, in the other."""
    if isinstance(sent, dict) and isinstance(got, dict):
        for key, value in sent.items():
            if key in got:
                yield from _lost(value, got[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}: Grafana knows no such field"
    elif isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        for i, (one, other) in enumerate(zip(sent, got)):
            yield from _lost(one, other, f"{path}/{i}")
    elif sent != got:
        yield f"{path}: {sent!r} is read as {got!r}"


def _enums(hint):
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        yield hint
    for part in typing.get_args(hint):
        yield from _enums(part)


def _values(thing, path):
    """Values that their enumeration does not have: the SDK takes any."""
    if isinstance(thing, (list, tuple)):
        for i, one in enumerate(thing):
            yield from _values(one, f"{path}/{i}")
    if not hasattr(thing, "to_json"):
        return
    hints = typing.get_type_hints(type(thing))
    for name, value in vars(thing).items():
        yield from _values(value, f"{path}/{name}")
        choices = {e.value for kind in _enums(hints.get(name)) for e in kind}
        if choices and isinstance(value, (str, int)) and value not in choices:
            yield f"{path}/{name}: {value!r} is none of {sorted(map(str, choices))}"


def _places(dashboard):
    """Panels that overlap or reach out of the 24 columns; identities that are not one's own."""
    taken = {}
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        if at["x"] + at["w"] > 24:
            yield f"{panel['title']}: wider than the page"
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if other != panel["title"]:
                    yield f"{panel['title']} lies on {other}"
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(set(ids)) < len(ids):
        yield "two panels have the same id"


def faults(dashboard):
    read = Dashboard.from_json(dashboard)
    written = json.loads(JSONEncoder().encode(read))
    return [*_lost(dashboard, written, ""), *_values(read, ""), *_places(dashboard)]


def _panel(dashboard, kind):
    return next(panel for panel in dashboard["panels"] if panel["type"] == kind)


# Each of them is a fault that faults() must find.
CHANGES = (
    lambda d: d.update(pannels=[]),
    lambda d: _panel(d, "stat")["options"].update(colour="value"),
    lambda d: _panel(d, "stat")["options"].update(colorMode="colourful"),
    lambda d: _panel(d, "timeseries")["fieldConfig"]["defaults"]["custom"].update(fill=1),
    lambda d: _panel(d, "timeseries")["targets"][0].update(expression="up"),
    lambda d: _panel(d, "timeseries")["gridPos"].update(y=0, x=20),
    lambda d: _panel(d, "heatmap").update(id=1),
)
