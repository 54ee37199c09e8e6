#include "comm/batch_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

struct Place {
  const Batch& batch;
  std::size_t entry;
  int rank;
  int ranks;

  [[noreturn]] void refuse(const std::string& why) const {
    throw ContractError{fmt::format("batch \"{}\", entry {} ({}): {}", batch.label(), entry,
                                    name_of(batch.ops()[entry]), why)};
  }
};

/// Bytes in memory that one entry reads or writes.
struct Range {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool written;
  std::size_t entry;
};

Range range_of(ConstView view, bool written, std::size_t entry) {
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  return {begin, begin + view.bytes(), written, entry};
}

bool overlap(ConstView a, ConstView b) {
  const Range x = range_of(a, false, 0);
  const Range y = range_of(b, false, 0);
  return x.begin < y.end && y.begin < x.end;
}

void check_view(ConstView view, const char* name, const Place& place) {
  if (size_of(view.dtype) == 0) {
    place.refuse(
        fmt::format("{} has dtype {}, which is no enumerator", name, static_cast<int>(view.dtype)));
  }
  if (view.elems < 0) {
    place.refuse(fmt::format("{} has {} elements; a count cannot be negative", name, view.elems));
  }
  constexpr std::int64_t most = std::int64_t{1} << 60;  // no address space has more bytes
  if (view.elems > most) {
    place.refuse(fmt::format("{} has {} elements, more than fit in memory", name, view.elems));
  }
  if (view.elems > 0 && view.data == nullptr) {
    place.refuse(fmt::format("{} is null but has {} elements", name, view.elems));
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.dtype) != 0) {
    place.refuse(fmt::format("{} is not aligned to its element size", name));
  }
}

/// `part` is one rank's piece of `full`. Checks sizes, dtypes, and that they overlap only in place.
void check_part(ConstView part, const char* part_name, ConstView full, const Place& place) {
  check_view(part, part_name, place);
  check_view(full, "full", place);
  if (part.dtype != full.dtype) {
    place.refuse(fmt::format("{} is {} but full is {}", part_name, to_string(part.dtype),
                             to_string(full.dtype)));
  }
  // Uses division: the product could overflow.
  if (full.elems % place.ranks != 0 || full.elems / place.ranks != part.elems) {
    place.refuse(fmt::format(
        "full has {} elements, but {} has {} and there are {} ranks; full must be their product",
        full.elems, part_name, part.elems, place.ranks));
  }
  const ConstView own = full.slice(place.rank * part.elems, part.elems);
  if (overlap(part, full) && part.data != own.data) {
    place.refuse(fmt::format(
        "{} overlaps full, but is not part {} of it; pass the rank's own part, or separate memory",
        part_name, place.rank));
  }
}

void check_root(int root, const Place& place) {
  if (root < 0 || root >= place.ranks) {
    place.refuse(fmt::format("root {} is not a rank of {}", root, place.ranks));
  }
}

using Ranges = std::vector<Range>;

void check_op(const AllGather& op, const Place& place, Ranges& ranges) {
  check_part(op.shard, "shard", op.full, place);
  ranges.push_back(range_of(op.shard, false, place.entry));
  ranges.push_back(range_of(op.full, true, place.entry));
}

void check_op(const ReduceScatter& op, const Place& place, Ranges& ranges) {
  check_part(op.shard, "shard", op.full, place);
  ranges.push_back(range_of(op.full, false, place.entry));
  ranges.push_back(range_of(op.shard, true, place.entry));
}

void check_op(const AllReduce& op, const Place& place, Ranges& ranges) {
  check_view(op.data, "data", place);
  ranges.push_back(range_of(op.data, true, place.entry));
}

void check_op(const Gather& op, const Place& place, Ranges& ranges) {
  check_root(op.root, place);
  check_view(op.part, "part", place);
  ranges.push_back(range_of(op.part, false, place.entry));
  if (place.rank != op.root) { return; }
  check_part(op.part, "part", op.full, place);
  ranges.push_back(range_of(op.full, true, place.entry));
}

/// Checks Broadcast and Reduce.
template <class Op>
void check_op(const Op& op, const Place& place, Ranges& ranges) {
  check_root(op.root, place);
  check_view(op.data, "data", place);
  ranges.push_back(range_of(op.data, true, place.entry));
}

void check_apart(Ranges& ranges, const Batch& batch, int rank, int ranks) {
  std::erase_if(ranges, [](const Range& r) { return r.begin == r.end; });
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (auto a = ranges.begin(); a != ranges.end(); ++a) {
    for (auto b = a + 1; b != ranges.end() && b->begin < a->end; ++b) {
      if (a->entry == b->entry || !(a->written || b->written)) { continue; }
      const auto [first, second] = std::minmax(a->entry, b->entry);
      Place{batch, second, rank, ranks}.refuse(
          fmt::format("overlaps entry {}, and one of them writes there", first));
    }
  }
}

}  // namespace

void check(const Batch& batch, int rank, int ranks) {
  Ranges ranges;
  ranges.reserve(2 * batch.ops().size());
  for (std::size_t entry = 0; entry < batch.ops().size(); ++entry) {
    const Place place{batch, entry, rank, ranks};
    std::visit([&](const auto& op) { check_op(op, place, ranges); }, batch.ops()[entry]);
  }
  check_apart(ranges, batch, rank, ranks);
}

}  // namespace tessera::comm
