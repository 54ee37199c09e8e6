#include "kernels/glu/glu.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {

void glu_forward(const GLUForward& args, Stream stream) {
  const Arguments check{"glu_forward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  if (args.row_elems != 0) { check.row("row_elems", args.row_elems, args.columns); }
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"gate", args.gate, elems}, {"up", args.up, elems}, {"y", args.y, elems}});
  check.table(stream).glu_forward(args, stream);
}

void glu_backward(const GLUBackward& args, Stream stream) {
  const Arguments check{"glu_backward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  if (args.row_elems != 0) { check.row("row_elems", args.row_elems, args.columns); }
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"gate", args.gate, elems},
                      {"up", args.up, elems},
                      {"dy", args.dy, elems},
                      {"dgate", args.dgate, elems},
                      {"dup", args.dup, elems}});
  check.table(stream).glu_backward(args, stream);
}

}  // namespace tessera::kernels
