#include "kernels/cross_entropy/cross_entropy.hpp"

#include <fmt/format.h>

#include "kernels/support/arguments.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {

void cross_entropy(const CrossEntropy& args, Stream stream) {
  const Arguments check{"cross_entropy"};
  check.sizes({{"rows", args.rows}, {"classes", args.classes}});
  if (args.rows > 0 && args.classes == 0) {
    throw ContractError{fmt::format(
        "cross_entropy: classes is 0, but {} rows have a target; give 1 or more", args.rows)};
  }
  check.row("stride", args.row_elems(), args.classes);
  check.arrays({{"logits", args.logits, args.rows * args.classes}});
  check.given("targets", args.targets, args.rows);
  check.given("loss", args.loss, 1);
  check.table(stream).cross_entropy(args, stream);
}

}  // namespace tessera::kernels
