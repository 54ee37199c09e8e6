#include "tessera/comm/batch.hpp"

#include <limits>

namespace tessera {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

/// Saturates where the product overflows: another rank may send any number.
std::int64_t times(std::int64_t elems, int ranks) noexcept {
  std::int64_t product = 0;
  const bool over = __builtin_mul_overflow(elems, std::int64_t{ranks}, &product);
  return over ? std::numeric_limits<std::int64_t>::max() : product;
}

std::size_t full_bytes(const CommOp& op, int ranks) noexcept {
  return static_cast<std::size_t>(full_elems(op, ranks)) * size_of(dtype_of(op));
}

}  // namespace

Batch& Batch::all_gather(ConstView shard, View full) {
  ops_.emplace_back(AllGather{shard, full});
  return *this;
}

Batch& Batch::reduce_scatter(ConstView full, View shard, ReduceOp op) {
  ops_.emplace_back(ReduceScatter{full, shard, op});
  return *this;
}

Batch& Batch::all_reduce(View data, ReduceOp op) {
  ops_.emplace_back(AllReduce{data, op});
  return *this;
}

Batch& Batch::broadcast(View data, int root) {
  ops_.emplace_back(Broadcast{data, root});
  return *this;
}

Batch& Batch::reduce(View data, ReduceOp op, int root) {
  ops_.emplace_back(Reduce{data, op, root});
  return *this;
}

Batch& Batch::gather(ConstView part, View full, int root) {
  ops_.emplace_back(Gather{part, full, root});
  return *this;
}

std::string_view name_of(const CommOp& op) noexcept {
  return std::visit(Overloaded{
                        [](const AllGather&) { return "all_gather"; },
                        [](const ReduceScatter&) { return "reduce_scatter"; },
                        [](const AllReduce&) { return "all_reduce"; },
                        [](const Broadcast&) { return "broadcast"; },
                        [](const Reduce&) { return "reduce"; },
                        [](const Gather&) { return "gather"; },
                    },
                    op);
}

std::int64_t full_elems(const CommOp& op, int ranks) noexcept {
  return std::visit(Overloaded{
                        [](const AllGather& o) { return o.full.elems; },
                        [](const ReduceScatter& o) { return o.full.elems; },
                        [ranks](const Gather& o) { return times(o.part.elems, ranks); },
                        [](const auto& o) { return o.data.elems; },
                    },
                    op);
}

DType dtype_of(const CommOp& op) noexcept {
  return std::visit(Overloaded{
                        [](const AllGather& o) { return o.full.dtype; },
                        [](const ReduceScatter& o) { return o.full.dtype; },
                        [](const Gather& o) { return o.part.dtype; },
                        [](const auto& o) { return o.data.dtype; },
                    },
                    op);
}

std::size_t sent_bytes(const CommOp& op, int rank, int ranks) noexcept {
  const std::size_t n = full_bytes(op, ranks);
  const auto size = static_cast<std::size_t>(ranks);
  if (size < 2) { return 0; }
  return std::visit(Overloaded{
                        [=](const AllGather&) { return n / size * (size - 1); },
                        [=](const ReduceScatter&) { return n / size * (size - 1); },
                        [=](const AllReduce&) { return 2 * n * (size - 1) / size; },
                        [=](const Broadcast& o) { return rank == o.root ? n * (size - 1) : 0; },
                        [=](const Reduce& o) { return rank == o.root ? 0 : n; },
                        [=](const Gather& o) { return rank == o.root ? 0 : n / size; },
                    },
                    op);
}

}  // namespace tessera
