"""What others have changed since a form was opened is refused, and nothing else."""

import pytest

from dealer_server.operations import versions
from dealer_server.operations.versions import ChangedMeanwhile, Field

SHOWN = versions.version_of({"qps": "10", "name": "A b", "price X=Y": "1.50"})


@pytest.mark.parametrize(
    ("stored", "yours", "changed"),
    [
        ({"qps": "10"}, {"qps": "20"}, []),
        ({"qps": "15"}, {"qps": "20"}, [Field("qps", "15", "20")]),
        ({"qps": "20"}, {"qps": "20"}, []),
        ({"qps": "15", "name": "A b"}, {"name": "C"}, []),
        ({}, {"price X=Y": "2"}, [Field("price X=Y", "", "2")]),
        ({"price X=Y": "1.50"}, {"price X=Y": ""}, []),
        ({}, {"price Z": "2"}, []),
        ({"price Z": "1"}, {"price Z": "2"}, [Field("price Z", "1", "2")]),
    ],
)
def test_what_others_have_changed_is_refused(
    stored: dict[str, str], yours: dict[str, str], changed: list[Field]
) -> None:
    versions.require(None, stored, yours)
    if not changed:
        versions.require(SHOWN, stored, yours)
        return
    with pytest.raises(ChangedMeanwhile) as refused:
        versions.require(SHOWN, stored, yours)
    assert refused.value.fields == changed
    versions.require(refused.value.version, stored, yours)
    with pytest.raises(ChangedMeanwhile):
        versions.require(refused.value.version, dict.fromkeys(yours, "another"), yours)
