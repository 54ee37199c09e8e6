#include "tessera/kernels/elementwise.hpp"

#include <fmt/format.h>

#include "kernels/support/arguments.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {

void add(ConstValues a, ConstValues b, Values y, std::int64_t elems, Stream stream) {
  const Arguments check{"add"};
  check.sizes({{"elems", elems}});
  check.of_one_dtype({{"a", a, elems}, {"b", b, elems}, {"y", y, elems}});
  check.table(stream).add(a, b, y, elems, stream);
}

void accumulate(Values to, ConstValues from, std::int64_t elems, Stream stream) {
  const Arguments check{"accumulate"};
  check.sizes({{"elems", elems}});
  check.arrays({{"to", to, elems}, {"from", from, elems}});
  check.table(stream).accumulate(to, from, elems, stream);
}

void scale(Values to, float factor, std::int64_t elems, Stream stream) {
  const Arguments check{"scale"};
  check.sizes({{"elems", elems}});
  check.arrays({{"to", to, elems}});
  check.table(stream).scale(to, factor, elems, stream);
}

void cast(View to, ConstView from, Stream stream) {
  const Arguments check{"cast"};
  check.sizes({{"to.elems", to.elems}, {"from.elems", from.elems}});
  check.arrays({{"to", to.values(), to.elems}, {"from", from.values(), from.elems}});
  if (to.elems != from.elems) {
    throw ContractError{fmt::format("cast: to has {} elements, but from has {}; give as many",
                                    to.elems, from.elems)};
  }
  check.table(stream).cast(to, from, stream);
}

}  // namespace tessera::kernels
