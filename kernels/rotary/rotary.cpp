#include "kernels/rotary/rotary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/support/arguments.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

void check_even(const char* function, const char* name, std::int64_t rotated) {
  if (rotated % 2 == 0) { return; }
  throw ContractError{fmt::format("{}: {} is {}; give an even number: values are rotated in pairs",
                                  function, name, rotated)};
}

void check_rotated(const Arguments& check, const char* function, const Rotary& args) {
  if (args.rotated == 0) { return check_even(function, "head_size", args.head_size); }
  check.sizes({{"rotated", args.rotated}});
  check_even(function, "rotated", args.rotated);
  if (args.rotated <= args.head_size) { return; }
  throw ContractError{
      fmt::format("{}: rotated is {}, but heads have {} elements; give as many or "
                  "fewer",
                  function, args.rotated, args.head_size)};
}

void check_rotary(const Arguments& check, const char* function, const Rotary& args) {
  check.sizes({{"batch", args.batch},
               {"seq", args.seq},
               {"heads", args.heads},
               {"head_size", args.head_size}});
  check_rotated(check, function, args);
  const std::int64_t columns = args.heads * args.head_size;
  if (args.row_elems != 0) { check.row("row_elems", args.row_elems, columns); }
  const std::int64_t elems = args.batch * args.seq * columns;
  check.arrays({{"x", args.x, elems}});
  if (elems == 0) { return; }
  check.given("cosines", args.cosines, args.seq * rotated_of(args) / 2);
  check.given("sines", args.sines, args.seq * rotated_of(args) / 2);
}

void check_scaling(const RotaryScaling& scaling) {
  if (scaling.original_positions < 0) {
    throw ContractError{fmt::format("rotary_angles: original_positions is {}; give 0 or more",
                                    scaling.original_positions)};
  }
  if (!(scaling.factor > 0.0)) {
    throw ContractError{
        fmt::format("rotary_angles: factor is {}; give a number above 0", scaling.factor)};
  }
  if (!(scaling.low_frequency_factor > 0.0 &&
        scaling.low_frequency_factor < scaling.high_frequency_factor)) {
    throw ContractError{fmt::format(
        "rotary_angles: low_frequency_factor is {} and high_frequency_factor {}; give two numbers "
        "above 0, the low one first",
        scaling.low_frequency_factor, scaling.high_frequency_factor)};
  }
}

double scaled(double frequency, const RotaryScaling& scaling) {
  if (scaling.original_positions == 0) { return frequency; }
  const double turns =
      static_cast<double>(scaling.original_positions) * frequency / (2.0 * std::numbers::pi);
  const double low = scaling.low_frequency_factor;
  const double high = scaling.high_frequency_factor;
  const double unchanged = std::clamp((turns - low) / (high - low), 0.0, 1.0);
  return unchanged * frequency + (1.0 - unchanged) * frequency / scaling.factor;
}

}  // namespace

void rotary_forward(const Rotary& args, Stream stream) {
  const Arguments check{"rotary_forward"};
  check_rotary(check, "rotary_forward", args);
  check.table(stream).rotary_forward(args, stream);
}

void rotary_backward(const Rotary& args, Stream stream) {
  const Arguments check{"rotary_backward"};
  check_rotary(check, "rotary_backward", args);
  check.table(stream).rotary_backward(args, stream);
}

void rotary_angles(std::int64_t seq, std::int64_t rotated, double base, std::span<float> cosines,
                   std::span<float> sines, const RotaryScaling& scaling) {
  Arguments{"rotary_angles"}.sizes({{"seq", seq}, {"rotated", rotated}});
  check_even("rotary_angles", "rotated", rotated);
  check_scaling(scaling);
  const std::int64_t pairs = rotated / 2;
  if (std::ssize(cosines) != seq * pairs || std::ssize(sines) != seq * pairs) {
    throw ContractError{fmt::format(
        "rotary_angles: the tables hold {} cosines and {} sines, but {} x {} are needed",
        cosines.size(), sines.size(), seq, pairs)};
  }
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotated);
    const double frequency = scaled(std::pow(base, exponent), scaling);
    for (std::int64_t t = 0; t < seq; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      const auto at = static_cast<std::size_t>(t * pairs + i);
      cosines[at] = static_cast<float>(std::cos(angle));
      sines[at] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace tessera::kernels
