#include "comm/batch_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::comm {
namespace {

/// What must agree across ranks besides operation, size and dtype.
struct Traits {
  std::optional<ReduceOp> reduction;
  std::optional<int> root;
  friend bool operator==(const Traits&, const Traits&) = default;
};

template <class Op>
Traits traits_of(const Op& op) {
  Traits traits;
  if constexpr (requires { op.op; }) { traits.reduction = op.op; }
  if constexpr (requires { op.root; }) { traits.root = op.root; }
  return traits;
}

Traits traits_of(const CommOp& op) {
  return std::visit([](const auto& o) { return traits_of(o); }, op);
}

bool agree(const CommOp& a, const CommOp& b, int ranks) {
  return a.index() == b.index() && full_elems(a, ranks) == full_elems(b, ranks) &&
         dtype_of(a) == dtype_of(b) && traits_of(a) == traits_of(b);
}

/// Index of the first entry in which the lists differ; their common length if they agree.
std::size_t common_entries(const Batch& a, const Batch& b, int ranks) {
  const std::size_t shorter = std::min(a.ops().size(), b.ops().size());
  for (std::size_t i = 0; i < shorter; ++i) {
    if (!agree(a.ops()[i], b.ops()[i], ranks)) { return i; }
  }
  return shorter;
}

std::string entry_or_nothing(const Batch& batch, std::size_t entry, int ranks) {
  return entry < batch.ops().size() ? describe(batch.ops()[entry], ranks) : "nothing";
}

}  // namespace

std::string describe(const CommOp& op, int ranks) {
  std::string text =
      fmt::format("{} of {} {}", name_of(op), full_elems(op, ranks), to_string(dtype_of(op)));
  const Traits traits = traits_of(op);
  if (traits.reduction) { text += *traits.reduction == ReduceOp::sum ? " (sum" : " (max"; }
  if (traits.root) {
    text += fmt::format("{}root {}", traits.reduction ? ", " : " (", *traits.root);
  }
  if (traits.reduction || traits.root) { text += ")"; }
  return text;
}

std::string describe(const Batch& batch) {
  const auto ops = batch.ops();
  if (ops.empty()) { return fmt::format("batch \"{}\" (empty)", batch.label()); }
  const std::string more = ops.size() > 1 ? fmt::format(" and {} more", ops.size() - 1) : "";
  return fmt::format("{}{} of batch \"{}\"", name_of(ops.front()), more, batch.label());
}

std::optional<std::string> first_difference(std::span<const Batch* const> batches,
                                            const NameOfRank& name_of) {
  const Batch& first = *batches.front();
  const int ranks = static_cast<int>(batches.size());
  const auto called = [&](std::size_t rank) { return name_of(static_cast<int>(rank)); };

  for (std::size_t rank = 1; rank < batches.size(); ++rank) {
    if (batches[rank]->label() != first.label()) {
      return fmt::format("{} issued batch \"{}\" where {} issued batch \"{}\"", called(rank),
                         batches[rank]->label(), called(0), first.label());
    }
  }

  std::size_t entry = 0;
  std::size_t culprit = 0;
  for (std::size_t rank = 1; rank < batches.size(); ++rank) {
    const std::size_t common = common_entries(first, *batches[rank], ranks);
    const std::size_t longer = std::max(first.ops().size(), batches[rank]->ops().size());
    if (common < longer && (culprit == 0 || common < entry)) {
      entry = common;
      culprit = rank;
    }
  }
  if (culprit == 0) { return std::nullopt; }
  return fmt::format("entry {} of batch \"{}\": {} issued {} where {} issued {}", entry,
                     first.label(), called(culprit),
                     entry_or_nothing(*batches[culprit], entry, ranks), called(0),
                     entry_or_nothing(first, entry, ranks));
}

}  // namespace tessera::comm
