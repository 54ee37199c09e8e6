#include "kernels/layer_norm/layer_norm.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {

void layer_norm_forward(const LayerNormForward& args, Stream stream) {
  const Arguments check{"layer_norm_forward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  check.elements_in(args.rows, {"columns", args.columns});
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"x", args.x, elems}, {"y", args.y, elems}});
  check.of_one_dtype({{"weight", args.weight, args.columns}, {"bias", args.bias, args.columns}});
  check.given("mean", args.mean, args.rows);
  check.given("inverse_std", args.inverse_std, args.rows);
  check.table(stream).layer_norm_forward(args, stream);
}

void layer_norm_backward(const LayerNormBackward& args, Stream stream) {
  const Arguments check{"layer_norm_backward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  check.elements_in(args.rows, {"columns", args.columns});
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"x", args.x, elems}, {"dy", args.dy, elems}, {"dx", args.dx, elems}});
  check.arrays({{"weight", args.weight, args.columns}});
  check.given_of_one_dtype(
      {{"dweight", args.dweight, args.columns}, {"dbias", args.dbias, args.columns}});
  check.given("mean", args.mean, args.rows);
  check.given("inverse_std", args.inverse_std, args.rows);
  check.table(stream).layer_norm_backward(args, stream);
}

}  // namespace tessera::kernels
