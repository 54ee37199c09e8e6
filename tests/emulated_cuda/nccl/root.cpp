#include "emulated_cuda/nccl/root.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/nccl/comm.hpp"
#include "emulated_cuda/nccl/wire.hpp"
#include "kernels/combine/combine.hpp"

namespace emulated_nccl {
namespace {

bool always() {
  return true;
}

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

/// What one rank brings to a group of calls.
struct Part {
  std::vector<Call> calls;
  std::vector<std::vector<std::byte>> data;  // of each call
  std::vector<std::size_t> collectives;      // which of them are all ranks'
};

/// What a rank brings to a call of all ranks.
struct Share {
  const Call* call;
  const std::vector<std::byte>* data;
};

class Root {
 public:
  explicit Root(Line listener) : listener_{std::move(listener)} {}

  void serve() {
    if (!meet()) { return; }
    while (group()) {}
    if (faults_of(0).notices_loss) { return; }
    // Ranks wait for those that are gone until their communicators are aborted, as NCCL's may.
    for (Line& line : lines_) {
      std::byte byte{};
      while (line.receive(&byte, 1, always) == Line::End::done) {}
    }
  }

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(lines_.size()); }

  /// True once all ranks are here and may go on.
  bool meet() {
    std::map<std::string, int> gpus;
    ncclResult_t verdict = ncclSuccess;
    int present = 0;
    do {
      Line line = accept_one(listener_);
      Hello hello;
      if (!line || line.receive(&hello, sizeof hello, always) != Line::End::done) { return false; }
      if (lines_.empty()) { lines_.resize(static_cast<std::size_t>(hello.ranks)); }
      lines_.at(static_cast<std::size_t>(hello.rank)) = std::move(line);
      const std::string gpu = std::string{hello.host} + '/' + std::to_string(hello.device);
      if (!gpus.emplace(gpu, hello.rank).second) { verdict = ncclInvalidUsage; }
    } while (++present < ranks());
    const auto told = static_cast<std::int32_t>(verdict);
    for (Line& line : lines_) {
      if (line.send(&told, sizeof told, always) != Line::End::done) { return false; }
    }
    return verdict == ncclSuccess;
  }

  /// One group of calls of all ranks. False if a rank is gone, or the ranks differ: then nobody is
  /// given anything, as when kernels wait for each other.
  bool group() {
    std::vector<Part> parts(lines_.size());
    for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
      if (!read(lines_[rank], static_cast<int>(rank), parts[rank])) { return false; }
    }
    std::vector<std::vector<std::byte>> answers(lines_.size());
    for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
      for (std::size_t i = 0; i < parts[rank].calls.size(); ++i) {
        if (!answer(parts, rank, i, answers[rank])) { return false; }
      }
    }
    for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
      const auto& bytes = answers[rank];
      if (lines_[rank].send(bytes.data(), bytes.size(), always) != Line::End::done) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] bool read(Line& line, int rank, Part& part) const {
    std::uint64_t count = 0;
    if (line.receive(&count, sizeof count, always) != Line::End::done) { return false; }
    part.calls.resize(count);
    part.data.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      Call& call = part.calls[i];
      if (line.receive(&call, sizeof call, always) != Line::End::done) { return false; }
      part.data[i].resize(sent(call, rank, ranks()) * size_of(call.type));
      if (line.receive(part.data[i].data(), part.data[i].size(), always) != Line::End::done) {
        return false;
      }
      if (call.kind != Kind::send && call.kind != Kind::receive) { part.collectives.push_back(i); }
    }
    return true;
  }

  /// Appends what `rank` gets of its call number `i`.
  [[nodiscard]] bool answer(const std::vector<Part>& parts, std::size_t rank, std::size_t i,
                            std::vector<std::byte>& out) const {
    const Call& call = parts[rank].calls[i];
    if (call.kind == Kind::send) { return true; }
    if (call.kind == Kind::receive) { return receive(parts, rank, i, out); }
    std::vector<Share> shares;
    if (!find_shares(parts, rank, i, shares)) { return false; }
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

  /// NCCL's results are undefined where some ranks' buffers are registered and others' are not.
  static void check_alike(const Call& a, const Call& b) {
    if (a.registered == b.registered) { return; }
    emulated_cuda::misuse("some ranks pass NCCL registered buffers, and others do not");
  }

  /// Every rank's part in what is call `i` of `rank`. False if they differ.
  [[nodiscard]] static bool find_shares(const std::vector<Part>& parts, std::size_t rank,
                                        std::size_t i, std::vector<Share>& shares) {
    const auto& mine = parts[rank].collectives;
    const auto number = static_cast<std::size_t>(std::ranges::find(mine, i) - mine.begin());
    for (const Part& part : parts) {
      if (number >= part.collectives.size()) { return false; }
      const std::size_t at = part.collectives[number];
      check_alike(part.calls[at], parts[rank].calls[i]);
      if (std::memcmp(&part.calls[at], &parts[rank].calls[i], sizeof(Call)) != 0) { return false; }
      shares.push_back({&part.calls[at], &part.data[at]});
    }
    return true;
  }

  /// The `n`-th that `rank` receives of a peer is the `n`-th that the peer sends it.
  [[nodiscard]] static bool receive(const std::vector<Part>& parts, std::size_t rank, std::size_t i,
                                    std::vector<std::byte>& out) {
    const Call& call = parts[rank].calls[i];
    std::size_t before = 0;
    for (std::size_t j = 0; j < i; ++j) {
      const Call& other = parts[rank].calls[j];
      before += other.kind == Kind::receive && other.peer == call.peer ? 1 : 0;
    }
    const Part& peer = parts.at(static_cast<std::size_t>(call.peer));
    for (std::size_t j = 0; j < peer.calls.size(); ++j) {
      const Call& other = peer.calls[j];
      if (other.kind != Kind::send || static_cast<std::size_t>(other.peer) != rank) { continue; }
      if (before-- > 0) { continue; }
      if (other.count != call.count || other.type != call.type) { return false; }
      check_alike(other, call);
      add(peer.data[j], 0, peer.data[j].size(), out);
      return true;
    }
    return false;
  }

  static void add(const std::vector<std::byte>& from, std::size_t at, std::size_t bytes,
                  std::vector<std::byte>& out) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(at);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
  }

  /// In rank order, so that results can be compared to the bit.
  static void reduce(const std::vector<Share>& shares, std::size_t at,
                     std::vector<std::byte>& out) {
    const Call& call = *shares.front().call;
    std::vector<const void*> from;
    for (const Share& share : shares) { from.push_back(share.data->data() + at); }
    std::vector<std::byte> result(call.count * size_of(call.type));
    tessera::kernels::reduce_in_order(
        result.data(), from, static_cast<std::int64_t>(call.count), dtype_of(call.type),
        call.op == ncclSum ? tessera::ReduceOp::sum : tessera::ReduceOp::max);
    add(result, 0, result.size(), out);
  }

  Line listener_;
  std::vector<Line> lines_;  // by rank
};

}  // namespace

bool start_root(const std::string& name) {
  Line listener = listen_as(name);
  if (!listener) { return false; }
  auto root = std::make_unique<Root>(std::move(listener));
  std::thread{[root = std::move(root)] { root->serve(); }}.detach();
  return true;
}

}  // namespace emulated_nccl
