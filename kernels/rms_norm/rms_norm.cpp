#include "kernels/rms_norm/rms_norm.hpp"

#include <fmt/format.h>

#include "kernels/support/arguments.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {

void rms_norm_forward(const RMSNormForward& args, Stream stream) {
  const Arguments check{"rms_norm_forward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  check.elements_in(args.rows, {"columns", args.columns});
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"x", args.x, elems}, {"y", args.y, elems}});
  check.arrays({{"weight", args.weight, args.columns}});
  check.given("inverse_rms", args.inverse_rms, args.rows);
  if (!(args.eps >= 0.0F)) {
    throw ContractError{fmt::format("rms_norm_forward: eps is {}; give 0 or more", args.eps)};
  }
  check.table(stream).rms_norm_forward(args, stream);
}

void rms_norm_backward(const RMSNormBackward& args, Stream stream) {
  const Arguments check{"rms_norm_backward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  check.elements_in(args.rows, {"columns", args.columns});
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"x", args.x, elems}, {"dy", args.dy, elems}, {"dx", args.dx, elems}});
  check.arrays({{"weight", args.weight, args.columns}});
  check.given_of_one_dtype({{"dweight", args.dweight, args.columns}});
  check.given("inverse_rms", args.inverse_rms, args.rows);
  check.table(stream).rms_norm_backward(args, stream);
}

}  // namespace tessera::kernels
