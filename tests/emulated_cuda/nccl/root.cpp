#include "emulated_cuda/nccl/root.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/nccl/answers.hpp"
#include "emulated_cuda/nccl/comm.hpp"
#include "emulated_cuda/nccl/wire.hpp"

namespace emulated_nccl {
namespace {

bool always() {
  return true;
}

class Root {
 public:
  Root(Line listener, std::string name) : listener_{std::move(listener)}, name_{std::move(name)} {}

  void serve() {
    if (!meet()) { return; }
    while (group()) {}
    if (faults().notices_loss) { return; }
    // Ranks wait for lost ranks until their communicators are aborted, as they may in NCCL.
    for (Line& line : lines_) {
      std::byte byte{};
      while (line.receive(&byte, 1, always) == Line::End::done) {}
    }
  }

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(lines_.size()); }

  /// Waits for all ranks. True if they may proceed.
  bool meet() {
    std::map<std::string, int> gpus;
    ncclResult_t verdict = ncclSuccess;
    int present = 0;
    do {
      Line line = accept_one(listener_);
      Hello hello;
      if (!line || line.receive(&hello, sizeof hello, always) != Line::End::done) { return false; }
      if (lines_.empty()) {
        lines_.resize(static_cast<std::size_t>(hello.ranks));
        job_ranks_.resize(lines_.size());
      }
      job_ranks_.at(static_cast<std::size_t>(hello.rank)) = hello.job_rank;
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

  /// Serves one group of calls of all ranks. False if a rank is gone or the ranks differ. Then no
  /// rank gets a result, as with kernels that wait for each other.
  bool group() {
    std::vector<Part> parts(lines_.size());
    for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
      if (!read(lines_[rank], static_cast<int>(rank), parts[rank])) { return false; }
    }
    if (all_split(parts)) { return split(parts); }
    if (all_register(parts)) { return connect(); }
    if (parts.front().connects) { return connect(); }  // before the first calls of all ranks
    std::vector<std::vector<std::byte>> answers(lines_.size());
    for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
      if (!Answers{parts, job_ranks_}.append(rank, answers[rank])) { return false; }
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
    if (count == kSplits) {
      part.split.emplace();
      return line.receive(&*part.split, sizeof *part.split, always) == Line::End::done;
    }
    if (count == kRegisters) {
      part.window.emplace();
      return line.receive(&*part.window, sizeof *part.window, always) == Line::End::done;
    }
    part.connects = count == kConnects;
    if (part.connects) { return true; }
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

  [[nodiscard]] bool all_split(const std::vector<Part>& parts) const {
    const bool first = parts[0].split.has_value();
    for (std::size_t rank = 1; rank < parts.size(); ++rank) {
      if (parts[rank].split.has_value() == first) { continue; }
      emulated_cuda::misuse("rank " + std::to_string(job_ranks_[first ? 0 : rank]) +
                            " splits a communicator of NCCL's on which rank " +
                            std::to_string(job_ranks_[first ? rank : 0]) + " makes calls");
    }
    return first;
  }

  [[nodiscard]] bool all_register(const std::vector<Part>& parts) const {
    for (std::size_t rank = 1; rank < parts.size(); ++rank) {
      if (parts[rank].window == parts[0].window) { continue; }
      emulated_cuda::misuse("ranks " + std::to_string(job_ranks_[0]) + " and " +
                            std::to_string(job_ranks_[rank]) +
                            " do not register the same window with a communicator of NCCL's");
    }
    return parts[0].window.has_value();
  }

  /// Tells all ranks that everyone has arrived. False if one is gone.
  [[nodiscard]] bool connect() {
    return std::ranges::all_of(lines_, [](Line& line) {
      constexpr std::byte kHere{1};
      return line.send(&kHere, 1, always) == Line::End::done;
    });
  }

  /// Makes a communicator of each colour's ranks, in the order of their keys. False if a rank is
  /// gone.
  [[nodiscard]] bool split(const std::vector<Part>& parts) {
    std::map<int, std::vector<std::pair<int, std::size_t>>> groups;  // by colour: keys and ranks
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      groups[parts[rank].split->color].emplace_back(parts[rank].split->key, rank);
    }
    ++splits_;
    for (auto& [color, members] : groups) {
      SplitAnswer answer;
      const std::string name = name_ + '/' + std::to_string(splits_) + '-' + std::to_string(color);
      if (color != NCCL_SPLIT_NOCOLOR) {
        if (name.size() >= sizeof answer.name || !start_root(name)) { return false; }
        name.copy(answer.name, sizeof answer.name - 1);
        answer.ranks = static_cast<std::int32_t>(members.size());
        std::ranges::sort(members);
      }
      for (const auto& [key, rank] : members) {
        if (lines_[rank].send(&answer, sizeof answer, always) != Line::End::done) { return false; }
        ++answer.rank;
      }
    }
    return true;
  }

  Line listener_;
  const std::string name_;
  std::vector<Line> lines_;     // indexed by rank
  std::vector<int> job_ranks_;  // indexed by rank, for messages
  int splits_ = 0;
};

}  // namespace

bool start_root(const std::string& name) {
  Line listener = listen_as(name);
  if (!listener) { return false; }
  auto root = std::make_unique<Root>(std::move(listener), name);
  std::thread{[root = std::move(root)] { root->serve(); }}.detach();
  return true;
}

}  // namespace emulated_nccl
