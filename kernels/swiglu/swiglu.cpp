#include "kernels/swiglu/swiglu.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {

void swiglu_forward(const SwiGLUForward& args, Stream stream) {
  const Arguments check{"swiglu_forward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  if (args.row_elems != 0) { check.row("row_elems", args.row_elems, args.columns); }
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"gate", args.gate, elems}, {"up", args.up, elems}, {"y", args.y, elems}});
  check.table(stream).swiglu_forward(args, stream);
}

void swiglu_backward(const SwiGLUBackward& args, Stream stream) {
  const Arguments check{"swiglu_backward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  if (args.row_elems != 0) { check.row("row_elems", args.row_elems, args.columns); }
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"gate", args.gate, elems},
                      {"up", args.up, elems},
                      {"dy", args.dy, elems},
                      {"dgate", args.dgate, elems},
                      {"dup", args.dup, elems}});
  check.table(stream).swiglu_backward(args, stream);
}

}  // namespace tessera::kernels
