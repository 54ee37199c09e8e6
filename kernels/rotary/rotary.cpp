#include "kernels/rotary/rotary.hpp"

#include <fmt/format.h>

#include <cmath>

#include "kernels/support/arguments.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

void check_head_size(const char* function, std::int64_t head_size) {
  if (head_size % 2 == 0) { return; }
  throw ContractError{fmt::format("{}: head_size is {}; give an even one, whose halves are pairs",
                                  function, head_size)};
}

void check_rotary(const Arguments& check, const char* function, const Rotary& args) {
  check.sizes({{"batch", args.batch},
               {"seq", args.seq},
               {"heads", args.heads},
               {"head_size", args.head_size}});
  check_head_size(function, args.head_size);
  const std::int64_t columns = args.heads * args.head_size;
  if (args.row_elems != 0) { check.row("row_elems", args.row_elems, columns); }
  const std::int64_t elems = args.batch * args.seq * columns;
  check.arrays({{"x", args.x, elems}});
  if (elems == 0) { return; }
  check.given("cosines", args.cosines, args.seq * args.head_size / 2);
  check.given("sines", args.sines, args.seq * args.head_size / 2);
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

void rotary_angles(std::int64_t seq, std::int64_t head_size, double base, std::span<float> cosines,
                   std::span<float> sines) {
  Arguments{"rotary_angles"}.sizes({{"seq", seq}, {"head_size", head_size}});
  check_head_size("rotary_angles", head_size);
  const std::int64_t pairs = head_size / 2;
  if (std::ssize(cosines) != seq * pairs || std::ssize(sines) != seq * pairs) {
    throw ContractError{fmt::format(
        "rotary_angles: the tables hold {} cosines and {} sines, but {} x {} are needed",
        cosines.size(), sines.size(), seq, pairs)};
  }
  for (std::int64_t t = 0; t < seq; ++t) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_size);
      const double angle = static_cast<double>(t) * std::pow(base, exponent);
      const auto at = static_cast<std::size_t>(t * pairs + i);
      cosines[at] = static_cast<float>(std::cos(angle));
      sines[at] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace tessera::kernels
