#include "kernels/attention/attention.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {
namespace {

void check_shape(const Arguments& check, const AttentionShape& shape) {
  check.sizes({{"shape.batch", shape.batch},
               {"shape.seq", shape.seq},
               {"shape.heads", shape.heads},
               {"shape.head_size", shape.head_size}});
  check.sizes({{"shape.kv_heads", shape.kv_heads}});
  check.sizes({{"shape.window", window_of(shape)}});
  check.divisor({"shape.kv_heads", shape.kv_heads}, {"shape.heads", shape.heads});
  check.factor("shape.scale", shape.scale);
}

/// Checks the arguments that both directions share, other than the arrays.
template <class Args>
void check_rest(const Arguments& check, const Args& args, Stream stream) {
  const std::int64_t rows = args.shape.batch * args.shape.heads * args.shape.seq;
  check.elements_in(rows, {"shape.head_size", args.shape.head_size});
  check.sizes({{"first_head", args.first_head}});
  check.given("log_sum_exp", args.log_sum_exp, rows);
  check.given("workspace", args.workspace,
              check.table(stream).attention_workspace_elems(args.shape, args.qkv.dtype,
                                                            stream.state()->kernels()));
  check.probability("dropout", args.dropout);
}

std::int64_t elems_of(const AttentionShape& shape) {
  return shape.batch * shape.seq * shape.heads * shape.head_size;
}
std::int64_t packed_elems_of(const AttentionShape& shape) {
  return shape.batch * shape.seq * packed_of(shape);
}

}  // namespace

void attention_forward(const AttentionForward& args, Stream stream) {
  const Arguments check{"attention_forward"};
  check_shape(check, args.shape);
  const std::int64_t elems = elems_of(args.shape);
  check.of_one_dtype({{"qkv", args.qkv, packed_elems_of(args.shape)}, {"y", args.y, elems}});
  check_rest(check, args, stream);
  check.table(stream).attention_forward(args, stream);
}

void attention_backward(const AttentionBackward& args, Stream stream) {
  const Arguments check{"attention_backward"};
  check_shape(check, args.shape);
  const std::int64_t elems = elems_of(args.shape);
  check.of_one_dtype({{"qkv", args.qkv, packed_elems_of(args.shape)},
                      {"y", args.y, elems},
                      {"dy", args.dy, elems},
                      {"dqkv", args.dqkv, packed_elems_of(args.shape)}});
  check_rest(check, args, stream);
  if (args.workspace_elems != 0) {
    check.at_least({"workspace_elems", args.workspace_elems}, "attention_workspace_elems",
                   check.table(stream).attention_workspace_elems(args.shape, args.qkv.dtype,
                                                                 stream.state()->kernels()));
  }
  check.table(stream).attention_backward(args, stream);
}

std::int64_t attention_workspace_elems(const AttentionShape& shape, DType dtype, Stream stream) {
  const Arguments check{"attention_workspace_elems"};
  check_shape(check, shape);
  check.arrays({{"dtype", {nullptr, dtype}, 0}});
  return check.table(stream).attention_workspace_elems(shape, dtype, stream.state()->kernels());
}

std::int64_t attention_backward_workspace_elems(const AttentionShape& shape, DType dtype,
                                                Stream stream) {
  const Arguments check{"attention_backward_workspace_elems"};
  check_shape(check, shape);
  check.arrays({{"dtype", {nullptr, dtype}, 0}});
  return check.table(stream).attention_backward_workspace_elems(shape, dtype,
                                                                stream.state()->kernels());
}

}  // namespace tessera::kernels
