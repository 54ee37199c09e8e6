#include "emulated_cuda/nccl/answers.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/nccl/comm.hpp"
#include "kernels/combine/combine.hpp"

namespace emulated_nccl {
namespace {

tessera::DType dtype_of(std::int32_t type) {
  switch (type) {
    case ncclFloat64:
      return tessera::DType::fp64;
    case ncclFloat16:
      return tessera::DType::fp16;
    case ncclBfloat16:
      return tessera::DType::bf16;
    default:
      return tessera::DType::fp32;
  }
}

void add(const std::vector<std::byte>& from, std::size_t at, std::size_t bytes,
         std::vector<std::byte>& out) {
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(at);
  out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
}

}  // namespace

/// A rank's part in a call of all ranks.
struct Answers::Share {
  const Call* call;
  const std::vector<std::byte>* data;
};

bool Answers::append(std::size_t rank, std::vector<std::byte>& out) const {
  for (std::size_t i = 0; i < parts_[rank].calls.size(); ++i) {
    if (!answer(rank, i, out)) { return false; }
  }
  return true;
}

/// Appends the result of `rank` in its call number `i`.
bool Answers::answer(std::size_t rank, std::size_t i, std::vector<std::byte>& out) const {
  const Call& call = parts_[rank].calls[i];
  if (call.kind == Kind::send) { return true; }
  if (call.kind == Kind::receive) { return receive(rank, i, out); }
  std::vector<Share> shares;
  if (!find_shares(rank, i, shares)) { return false; }
  const std::uint64_t bytes = call.count * size_of(call.type);
  switch (call.kind) {
    case Kind::all_gather:
      for (const Share& share : shares) { add(*share.data, 0, bytes, out); }
      return true;
    case Kind::broadcast:
      add(*shares.at(static_cast<std::size_t>(call.peer)).data, 0, bytes, out);
      return true;
    case Kind::reduce:
      if (static_cast<std::size_t>(call.peer) == rank) { reduce(shares, 0, out); }
      return true;
    case Kind::all_reduce:
      reduce(shares, 0, out);
      return true;
    case Kind::reduce_scatter:
      reduce(shares, rank * bytes, out);
      return true;
    default:
      return false;
  }
}

/// NCCL's results are undefined if only some ranks pass registered buffers.
void Answers::check_alike(const Call& a, std::size_t rank_a, const Call& b,
                          std::size_t rank_b) const {
  if (a.registered == b.registered) { return; }
  const bool first = a.registered != 0;
  emulated_cuda::misuse("rank " + std::to_string(job_ranks_[first ? rank_a : rank_b]) +
                        " passes NCCL registered buffers where rank " +
                        std::to_string(job_ranks_[first ? rank_b : rank_a]) + " does not");
}

/// Finds every rank's part in the collective that is call `i` of `rank`. False if the calls differ.
bool Answers::find_shares(std::size_t rank, std::size_t i, std::vector<Share>& shares) const {
  const auto& mine = parts_[rank].collectives;
  const auto number = static_cast<std::size_t>(std::ranges::find(mine, i) - mine.begin());
  for (std::size_t other = 0; other < parts_.size(); ++other) {
    const Part& part = parts_[other];
    if (number >= part.collectives.size()) { return false; }
    const std::size_t at = part.collectives[number];
    check_alike(part.calls[at], other, parts_[rank].calls[i], rank);
    if (std::memcmp(&part.calls[at], &parts_[rank].calls[i], sizeof(Call)) != 0) { return false; }
    shares.push_back({&part.calls[at], &part.data[at]});
  }
  return true;
}

/// The n-th receive from a peer gets the peer's n-th send to `rank`.
bool Answers::receive(std::size_t rank, std::size_t i, std::vector<std::byte>& out) const {
  const Call& call = parts_[rank].calls[i];
  std::size_t before = 0;
  for (std::size_t j = 0; j < i; ++j) {
    const Call& other = parts_[rank].calls[j];
    before += other.kind == Kind::receive && other.peer == call.peer ? 1 : 0;
  }
  const Part& peer = parts_.at(static_cast<std::size_t>(call.peer));
  for (std::size_t j = 0; j < peer.calls.size(); ++j) {
    const Call& other = peer.calls[j];
    if (other.kind != Kind::send || static_cast<std::size_t>(other.peer) != rank) { continue; }
    if (before-- > 0) { continue; }
    if (other.count != call.count || other.type != call.type) { return false; }
    check_alike(other, static_cast<std::size_t>(call.peer), call, rank);
    add(peer.data[j], 0, peer.data[j].size(), out);
    return true;
  }
  return false;
}

/// Adds in rank order, so results can be compared bit by bit, or in reverse if a test asks for it.
void Answers::reduce(const std::vector<Share>& shares, std::size_t at,
                     std::vector<std::byte>& out) {
  const Call& call = *shares.front().call;
  std::vector<const void*> from;
  for (const Share& share : shares) { from.push_back(share.data->data() + at); }
  if (setting("TESSERA_EMULATED_NCCL_SUMS") == "backward") { std::ranges::reverse(from); }
  std::vector<std::byte> result(call.count * size_of(call.type));
  tessera::kernels::reduce_in_order(
      result.data(), from, static_cast<std::int64_t>(call.count), dtype_of(call.type),
      call.op == ncclSum ? tessera::ReduceOp::sum : tessera::ReduceOp::max);
  add(result, 0, result.size(), out);
}

}  // namespace emulated_nccl
