#include "kernels/gelu/gelu.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {

void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream stream, GELU form) {
  const Arguments check{"gelu_forward"};
  check.sizes({{"elems", elems}});
  check.of_one_dtype({{"x", x, elems}, {"y", y, elems}});
  check.table(stream).gelu_forward(x, y, elems, stream, form);
}

void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream stream,
                   GELU form) {
  const Arguments check{"gelu_backward"};
  check.sizes({{"elems", elems}});
  check.of_one_dtype({{"x", x, elems}, {"dy", dy, elems}, {"dx", dx, elems}});
  check.table(stream).gelu_backward(x, dy, dx, elems, stream, form);
}

}  // namespace tessera::kernels
