"""The time of an image from the time of a pixel at a few positions. No clock is asserted."""

import pytest
from pixel_cases import decoder

from transnormer_lib.analysis.pixel_speed import Timing, Way, along, throughputs, timings
from transnormer_lib.models.language_model import build_model
from transnormer_lib.models.pixel_generation import with_attention

PLACES = (1, 97, 195, 783, 1567, 3071)


def curve(cost, way: str = "w", batch: int = 1, rounds: int = 2) -> Timing:
    return Timing(way, batch, {at: (cost(at),) * rounds for at in PLACES})


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("pixels", [196, 784, 3072])
def test_the_integral_over_the_positions_is_near_the_sum_over_all_pixels(power: int, pixels: int) -> None:
    exact = sum(at**power for at in range(pixels))
    found = curve(lambda at: float(at**power)).image_seconds(pixels, 0)
    assert found == pytest.approx(exact, rel=0.05 if power == 2 else 0.01)


def test_a_batch_shares_its_time() -> None:
    assert curve(lambda at: 1.0, batch=4).image_seconds(784, 0) == pytest.approx(783 / 4)


def test_what_was_not_timed_so_far_has_no_throughput() -> None:
    short = Timing("w", 1, {1: (1.0,), 195: (1.0,)})
    assert short.image_seconds(784, 0) is None
    assert throughputs([short], 784) == {}
    assert list(throughputs([short], 196)) == ["w"]


def test_the_batch_with_the_most_images_per_second_counts() -> None:
    times = [curve(lambda at: 1.0), curve(lambda at: 2.0, batch=8), curve(lambda at: 90.0, batch=64)]
    assert throughputs(times, 784)["w"].batch == 8
    assert throughputs(times, 784, batch=1)["w"].batch == 1


def test_a_cache_grows_with_the_position_and_a_state_does_not() -> None:
    model = build_model(decoder(), 0)
    linear, cached = (Way(with_attention(model, name, 64), False, (1, 4)) for name in ("linear", "softmax"))
    assert linear.state_bytes(1) == linear.state_bytes(50) == 4 * 2 * 2 * (8 * 8 + 8)
    assert cached.state_bytes(50) == 50 * cached.state_bytes(1) == 4 * 50 * 2 * 2 * 16
    assert cached.fits(50, 4 * cached.state_bytes(50)) == [1, 4]
    assert cached.fits(50, 4 * cached.state_bytes(50) - 1) == [1]


def test_every_way_is_timed_where_it_fits() -> None:
    model = build_model(decoder(), 0)
    ways = {
        "linear": Way(with_attention(model, "linear", 64), False, (1, 2)),
        "anew": Way(with_attention(model, "softmax", 64), True, (1,), longest=4),
    }
    times = {(t.way, t.batch): t for t in timings(ways, (1, 4, 9), memory=1e9, rounds=2, repeats=1)}
    assert {key: sorted(t.seconds) for key, t in times.items()} == {
        ("linear", 1): [1, 4, 9],
        ("linear", 2): [1, 4, 9],
        ("anew", 1): [1, 4],
    }
    assert all(value > 0 for t in times.values() for values in t.seconds.values() for value in values)


def test_a_way_without_a_cache_settles_on_one_batch() -> None:
    model = build_model(decoder(), 0)
    ways = {
        "linear": Way(with_attention(model, "linear", 64), False, (1, 2)),
        "anew": Way(with_attention(model, "softmax", 64), True, (1, 2, 4)),
    }
    times = timings(ways, (1, 4, 9, 16), memory=1e9, rounds=1, repeats=1, settle=4)
    everywhere = [t for t in times if sorted(t.seconds) == [1, 4, 9, 16]]
    assert sorted(t.way for t in everywhere) == ["anew", "linear", "linear"]
    assert all(sorted(t.seconds) == [1, 4] for t in times if t not in everywhere)
    (settled,) = (t for t in everywhere if t.way == "anew")
    each = {t.batch: t.seconds[4][0] / t.batch for t in times if t.way == "anew"}
    near = [batch for batch, seconds in each.items() if seconds <= 1.1 * min(each.values())]
    assert settled.batch == min(near)


def test_positions_take_turns_only_where_memory_does_not_grow() -> None:
    model = build_model(decoder(), 0)
    rounds = along(Way(with_attention(model, "linear", 64), False, (2,)), (1, 9), 2, rounds=2, repeats=1)
    assert [sorted(one) for one in rounds] == [[1, 9], [1, 9]]
    with pytest.raises(ValueError, match="grows with the position"):
        along(Way(with_attention(model, "softmax", 64), False, (2,)), (1, 9), 2)


def test_a_position_at_which_no_way_fits_is_left_out() -> None:
    model = build_model(decoder(), 0)
    ways = {"anew": Way(with_attention(model, "softmax", 64), True, (1,), longest=4)}
    assert [sorted(one.seconds) for one in timings(ways, (1, 9), memory=1e9, rounds=2, repeats=1)] == [[1]]


def test_a_position_without_room_for_the_pixels_is_refused_at_once() -> None:
    ways = {"linear": Way(with_attention(build_model(decoder(), 0), "linear", 12), False, (1,))}
    with pytest.raises(ValueError, match="positions=9: linear would write up to 65, its max_length is 12"):
        timings(ways, (1, 9), memory=1e9, rounds=2, repeats=3)
