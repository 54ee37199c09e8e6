#include "kernels/dropout/dropout.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {

void dropout(const Dropout& args, Stream stream) {
  const Arguments check{"dropout"};
  check.sizes({{"samples", args.samples}, {"sample_elems", args.sample_elems}});
  check.sizes({{"first_elem", args.first_elem}});
  check.probability("p", args.p);
  const std::int64_t elems = args.samples * args.sample_elems;
  check.of_one_dtype({{"x", args.x, elems}, {"y", args.y, elems}});
  check.table(stream).dropout(args, stream);
}

}  // namespace tessera::kernels
