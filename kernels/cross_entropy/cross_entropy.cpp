#include "kernels/cross_entropy/cross_entropy.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {

void cross_entropy(const CrossEntropy& args, Stream stream) {
  const Arguments check{"cross_entropy"};
  check.sizes({{"rows", args.rows}, {"classes", args.classes}});
  check.elements_in(args.rows, {"classes", args.classes});
  check.row("stride", args.row_elems(), args.classes);
  check.arrays({{"logits", args.logits, args.rows * args.classes}});
  check.given("targets", args.targets, args.rows);
  check.given("loss", args.loss, 1);
  check.table(stream).cross_entropy(args, stream);
}

}  // namespace tessera::kernels
