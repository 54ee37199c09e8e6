#include "kernels/quantised/quantised.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {

void nf4_quantise(const NF4Quantise& args, Stream stream) {
  const Arguments check{"nf4_quantise"};
  check.sizes({{"elems", args.elems}});
  check.arrays({{"values", args.values, args.elems}});
  check.given("codes", args.codes, (args.elems + 1) / 2);
  check.given("absmax", args.absmax, nf4_blocks(args.elems));
  check.table(stream).nf4_quantise(args, stream);
}

void nf4_quantise_absmax(const NF4QuantiseAbsmax& args, Stream stream) {
  const Arguments check{"nf4_quantise_absmax"};
  check.sizes({{"blocks", args.blocks}});
  check.given("absmax", args.absmax, args.blocks);
  check.factor("offset", args.offset);
  check.given("codes", args.codes, args.blocks);
  check.given("scales", args.scales, nf4_groups(args.blocks));
  check.table(stream).nf4_quantise_absmax(args, stream);
}

void nf4_dequantise(const NF4Dequantise& args, Stream stream) {
  const Arguments check{"nf4_dequantise"};
  check.sizes({{"elems", args.elems}});
  check.multiple({"from.first", args.from.first}, "kNF4Block", kNF4Block);
  check.given("from.codes", args.from.codes, (args.elems + 1) / 2);
  check.given("from.absmax_codes", args.from.absmax_codes, nf4_blocks(args.elems));
  check.given("from.scales", args.from.scales, nf4_groups(nf4_blocks(args.elems)));
  check.factor("from.offset", args.from.offset);
  check.arrays({{"to", args.to, args.elems}});
  check.table(stream).nf4_dequantise(args, stream);
}

void int8_quantise(const Int8Quantise& args, Stream stream) {
  const Arguments check{"int8_quantise"};
  check.sizes({{"elems", args.elems}});
  check.arrays({{"values", args.values, args.elems}});
  check.given("codes", args.codes, args.elems);
  check.given("scales", args.scales, int8_blocks(args.elems));
  check.table(stream).int8_quantise(args, stream);
}

void int8_dequantise(const Int8Dequantise& args, Stream stream) {
  const Arguments check{"int8_dequantise"};
  check.sizes({{"elems", args.elems}});
  check.multiple({"from.first", args.from.first}, "kNF4Block", kNF4Block);
  check.given("from.codes", args.from.codes, args.elems);
  check.given("from.scales", args.from.scales, int8_blocks(args.elems));
  check.arrays({{"to", args.to, args.elems}});
  check.table(stream).int8_dequantise(args, stream);
}

}  // namespace tessera::kernels
