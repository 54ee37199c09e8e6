#include "kernels/vocab_cross_entropy/vocab_cross_entropy.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {
namespace {

template <class Args>
void check_rows(const Arguments& check, const Args& args) {
  check.sizes({{"rows", args.rows}, {"classes", args.classes}});
  check.sizes({{"first_class", args.first_class}});
  check.row("stride", args.row_elems(), args.classes);
  check.arrays({{"logits", args.logits, args.rows * args.classes}});
  check.given("targets", args.targets, args.rows);
}

}  // namespace

void vocab_statistics(const VocabStatistics& args, Stream stream) {
  const Arguments check{"vocab_statistics"};
  check_rows(check, args);
  check.given("statistics", args.statistics, args.rows * kRowStatistics);
  check.table(stream).vocab_statistics(args, stream);
}

void vocab_cross_entropy(const VocabCrossEntropy& args, Stream stream) {
  const Arguments check{"vocab_cross_entropy"};
  check_rows(check, args);
  check.sizes({{"parts", args.parts}, {"rows", args.rows}});
  check.elements_in(args.rows, {"parts", args.parts});
  check.given("statistics", args.statistics, args.parts * args.rows * kRowStatistics);
  check.given("loss", args.loss, 1);
  check.table(stream).vocab_cross_entropy(args, stream);
}

}  // namespace tessera::kernels
