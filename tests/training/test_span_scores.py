"""The scores of answers in a text, against a slow form of CMRC's definition."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.training.metrics import span_scores, units_of

answers = st.text("甲乙a1，。 .", max_size=7)
full = answers.filter(units_of)


def slow_f1(one: str, other: str) -> float:
    """Every stretch of the one that also is in the other; the longest counts."""
    ours, theirs = units_of(one), units_of(other)
    stretches = {tuple(of[a:b]) for of in (ours,) for a, b in combinations(range(len(of) + 1), 2)}
    shared = [s for s in stretches if any(s == tuple(theirs[a : a + len(s)]) for a in range(len(theirs)))]
    longest = max(map(len, shared), default=0)
    if not longest:
        return 0.0
    precision, recall = longest / len(ours), longest / len(theirs)
    return 2 * precision * recall / (precision + recall)


@given(found=full, references=st.lists(full, min_size=1, max_size=3))
def test_f1_is_that_of_the_longest_shared_stretch_with_the_best_reference(found: str, references: list[str]) -> None:
    assert span_scores([found], [references])["f1"] == pytest.approx(max(slow_f1(found, r) for r in references))


@given(found=answers, reference=answers)
def test_f1_is_one_exactly_for_equal_answers_and_so_is_the_exact_match(found: str, reference: str) -> None:
    scores = span_scores([found], [[reference]])
    equal = units_of(found) == units_of(reference)
    assert (scores["f1"] == 1.0, scores["exact_match"] == 1.0) == (equal, equal)


@given(one=answers, other=answers)
def test_the_scores_are_symmetric_and_bounded(one: str, other: str) -> None:
    scores = span_scores([one], [[other]])
    assert scores == pytest.approx(span_scores([other], [[one]]))
    assert 0.0 <= scores["exact_match"] <= scores["score"] <= scores["f1"] <= 1.0


@given(found=answers, references=st.lists(answers, min_size=1, max_size=3), more=answers)
def test_a_further_reference_never_lowers_a_score(found: str, references: list[str], more: str) -> None:
    fewer, all_of = span_scores([found], [references]), span_scores([found], [[*references, more]])
    assert all(fewer[name] <= all_of[name] for name in fewer)


@given(pairs=st.lists(st.tuples(answers, answers), min_size=1, max_size=4))
def test_the_scores_of_several_answers_are_their_means(pairs: list[tuple[str, str]]) -> None:
    whole = span_scores([a for a, _ in pairs], [[b] for _, b in pairs])
    single = [span_scores([a], [[b]]) for a, b in pairs]
    assert whole == pytest.approx({name: sum(of[name] for of in single) / len(pairs) for name in whole})


@pytest.mark.parametrize(
    ("answer", "units"),
    [
        ("《红楼梦》，", ["红", "楼", "梦"]),
        (" Apple Watch 2015年", ["apple", "watch", "2015", "年"]),
        ("3.5亿", ["3.5", "亿"]),
        ("二-三", ["二", "三"]),
        ("，。", []),
    ],
    ids=["title", "words", "number", "hyphen", "nothing"],
)
def test_an_answer_is_cut_as_cmrc_cuts_it(answer: str, units: list[str]) -> None:
    assert units_of(answer) == units


def test_a_stretch_that_is_broken_counts_by_its_longest_part() -> None:
    assert span_scores(["甲乙丙丁"], [["甲乙戊丙丁"]])["f1"] == pytest.approx(2 * 2 / 9)
