"""A diagnosis as JSON, under a versioned schema."""

from importlib.metadata import version
from typing import Any

from calibrant.diagnosis import Diagnosis
from calibrant.report.diagnosis.wording import diagnosis_words, words_of_verdict

__all__ = ["DIAGNOSIS_SCHEMA", "diagnosis_to_document"]

DIAGNOSIS_SCHEMA = "calibrant.diagnosis/1"
_DRAWN = ("confidence", "right", "wrong")  # of a density: hundreds of points that only a picture needs


def diagnosis_to_document(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain data: numbers that do not exist (NaN) are None.

    ``verdict`` has the words; the rest are the fields of :class:`~calibrant.diagnosis.Diagnosis` under their names, but
    for ``bins``. A number over runs has ``mean``, ``std``, ``lowest``, ``highest`` and ``values``, one a run. Densities
    are left out, except for their medians.

    Args:
        found: The numbers.
    """
    plain = found.as_dict()
    for candidate in plain["refinement"]:
        for row in candidate["rows"]:
            for name in _DRAWN if row["density"] is not None else ():
                del row["density"][name]
    for verdict, stored in zip(found.verdicts, plain["verdicts"], strict=True):
        stored["words"], stored["basis"] = words_of_verdict(found, verdict)
    words = vars(diagnosis_words(found))
    return {
        "schema": DIAGNOSIS_SCHEMA,
        "calibrant": version("calibrant"),
        "verdict": words,
        "bins": plain.pop("n_bins"),
        **plain,
    }
