#include "kernels/rms_norm/rms_norm.hpp"

#include <fmt/format.h>

#include "kernels/support/arguments.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

/// `group_elems` are the distances between the groups of arrays, by name.
void check_groups(const Arguments& check, const auto& args,
                  std::initializer_list<Arguments::Size> group_elems) {
  check.group({"group", args.group}, {"rows", args.rows});
  if (args.rows == 0) { return; }
  for (const Arguments::Size& elems : group_elems) {
    if (elems.value == 0) { continue; }
    check.row(elems.name, elems.value, args.group * args.columns, "group");
    check.sizes({{"rows / group", args.rows / args.group}, elems});
  }
}

}  // namespace

void rms_norm_forward(const RMSNormForward& args, Stream stream) {
  const Arguments check{"rms_norm_forward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  check.elements_in(args.rows, {"columns", args.columns});
  check_groups(check, args,
               {{"x_group_elems", args.x_group_elems}, {"y_group_elems", args.y_group_elems}});
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"x", args.x, elems}, {"y", args.y, elems}});
  check.arrays({{"weight", args.weight, args.columns}});
  check.given("inverse_rms", args.inverse_rms, args.rows);
  if (!(args.eps >= 0.0F)) {
    throw ContractError{fmt::format("rms_norm_forward: eps is {}; give 0 or more", args.eps)};
  }
  check.table(stream).rms_norm_forward(args, stream);
}

void rms_norm_backward(const RMSNormBackward& args, Stream stream) {
  const Arguments check{"rms_norm_backward"};
  check.sizes({{"rows", args.rows}, {"columns", args.columns}});
  check.elements_in(args.rows, {"columns", args.columns});
  check_groups(check, args,
               {{"x_group_elems", args.x_group_elems},
                {"dy_group_elems", args.dy_group_elems},
                {"dx_group_elems", args.dx_group_elems}});
  const std::int64_t elems = args.rows * args.columns;
  check.of_one_dtype({{"x", args.x, elems}, {"dy", args.dy, elems}, {"dx", args.dx, elems}});
  check.arrays({{"weight", args.weight, args.columns}});
  check.given_of_one_dtype({{"dweight", args.dweight, args.columns}});
  check.given("inverse_rms", args.inverse_rms, args.rows);
  check.table(stream).rms_norm_backward(args, stream);
}

}  // namespace tessera::kernels
