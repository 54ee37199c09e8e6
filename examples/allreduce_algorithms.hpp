#pragma once

// Ranks that receive from each other in rounds, with counters, and four all-reduce algorithms.

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstddef>
#include <functional>
#include <vector>

/// The cost of an all-reduce.
struct Cost {
  std::size_t bytes = 0;  ///< sent and received by the busiest rank
  int steps = 0;          ///< messages in sequence, if a rank sends and receives one at a time
  int rounds = 0;         ///< rounds that had to wait for each other
  double link_s = 0;      ///< on a network where a step of b bytes takes latency + b / bandwidth
};

/// A network with one full-duplex link per rank.
struct Link {
  double latency_s = 10e-6;
  double bytes_per_s = 10e9;
};

/// `size` ranks with `elems` floats each, a multiple of `size`. In a round a rank receives what the
/// others held when the round began: nobody writes in a round what another rank reads in it.
class Ranks {
 public:
  Ranks(int size, std::size_t elems) : data_(at(size)), ports_(at(size)), rounds_{size, End{this}} {
    for (auto& data : data_) { data.resize(elems); }
  }

  [[nodiscard]] int size() const { return static_cast<int>(data_.size()); }
  [[nodiscard]] std::vector<float>& of(int rank) { return data_[at(rank)]; }

  /// A message from rank `from` to `rank`: piece `piece` of `pieces`.
  void copy(int rank, int from, int piece = 0, int pieces = 1) {
    const auto [first, last] = receive(rank, from, piece, pieces);
    std::copy(of(from).begin() + first, of(from).begin() + last, of(rank).begin() + first);
  }
  void add(int rank, int from, int piece = 0, int pieces = 1) {
    const auto [first, last] = receive(rank, from, piece, pieces);
    std::transform(of(from).begin() + first, of(from).begin() + last, of(rank).begin() + first,
                   of(rank).begin() + first, std::plus<>{});
  }
  /// Called by every rank; returns when all have called it.
  void end_round() { rounds_.arrive_and_wait(); }

  /// The cost since the last reset. Call it between rounds.
  [[nodiscard]] Cost cost() const {
    Cost cost = cost_;
    for (const Port& port : ports_) { cost.bytes = std::max(cost.bytes, port.total_bytes); }
    return cost;
  }
  void reset() {
    cost_ = {};
    for (Port& port : ports_) { port.total_bytes = 0; }
  }

 private:
  struct Port {  // counters of a rank in the current round
    std::atomic<std::size_t> out_bytes = 0, in_bytes = 0;
    std::atomic<int> out = 0, in = 0;  // messages
    std::size_t total_bytes = 0;
  };
  struct End {
    Ranks* ranks;
    void operator()() noexcept { ranks->count_round(); }
  };
  struct Range {
    std::ptrdiff_t first, last;
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  Range receive(int rank, int from, int piece, int pieces) {
    const auto each = static_cast<std::ptrdiff_t>(of(rank).size()) / pieces;
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(each);
    ports_[at(rank)].in_bytes += bytes;
    ports_[at(rank)].in += 1;
    ports_[at(from)].out_bytes += bytes;
    ports_[at(from)].out += 1;
    return {piece * each, (piece + 1) * each};
  }

  void count_round() noexcept {
    const Link link;
    int steps = 0;
    double seconds = 0;
    for (Port& port : ports_) {
      const auto takes = [&](int messages, std::size_t bytes) {
        return messages * link.latency_s + static_cast<double>(bytes) / link.bytes_per_s;
      };
      steps = std::max({steps, port.in.load(), port.out.load()});
      seconds = std::max({seconds, takes(port.in, port.in_bytes), takes(port.out, port.out_bytes)});
      port.total_bytes += port.in_bytes + port.out_bytes;
      port.in = port.out = 0;
      port.in_bytes = port.out_bytes = 0;
    }
    cost_.steps += steps;
    cost_.link_s += seconds;
    ++cost_.rounds;
  }

  std::vector<std::vector<float>> data_;
  std::vector<Port> ports_;
  Cost cost_;
  std::barrier<End> rounds_;
};

// Every rank calls each of these functions, which leaves the sum of all data on every rank. Its
// formula gives the cost for n ranks with `bytes` each.

/// Reduce and broadcast: all send to rank 0, which adds and sends the sum back.
inline void star(Ranks& ranks, int rank) {
  for (int from = 1; rank == 0 && from < ranks.size(); ++from) { ranks.add(0, from); }
  ranks.end_round();
  if (rank != 0) { ranks.copy(rank, 0); }
  ranks.end_round();
}
inline Cost star_formula(int n, std::size_t bytes) {
  const int messages = 2 * (n - 1);
  return {.bytes = bytes * static_cast<std::size_t>(messages), .steps = messages, .rounds = 2};
}

/// The same over a binomial tree: pairs of ranks, then pairs of pairs, ... and back.
inline void tree(Ranks& ranks, int rank) {
  int distance = 1;
  for (; distance < ranks.size(); distance *= 2) {
    if (rank % (2 * distance) == 0 && rank + distance < ranks.size()) {
      ranks.add(rank, rank + distance);
    }
    ranks.end_round();
  }
  for (distance /= 2; distance > 0; distance /= 2) {
    if (rank % (2 * distance) == distance) { ranks.copy(rank, rank - distance); }
    ranks.end_round();
  }
}
inline Cost tree_formula(int n, std::size_t bytes) {
  const int levels = 2 * static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
  return {.bytes = bytes * static_cast<std::size_t>(levels), .steps = levels, .rounds = levels};
}

/// Reduce-scatter and all-gather: rank r adds up piece r of all ranks, then every rank fetches
/// every piece.
inline void all_to_all(Ranks& ranks, int rank) {
  const int n = ranks.size();
  for (int k = 1; k < n; ++k) { ranks.add(rank, (rank + k) % n, rank, n); }
  ranks.end_round();
  for (int k = 1; k < n; ++k) { ranks.copy(rank, (rank + k) % n, (rank + k) % n, n); }
  ranks.end_round();
}
inline Cost all_to_all_formula(int n, std::size_t bytes) {
  const int messages = 2 * (n - 1);  // of one piece each, sent; as many are received
  const std::size_t both_ways = 2 * static_cast<std::size_t>(messages);
  return {.bytes = bytes / static_cast<std::size_t>(n) * both_ways, .steps = messages, .rounds = 2};
}

/// The same, but every rank receives only from its left neighbour: a piece collects its sum on one
/// way round the ring, and is distributed on a second.
inline void ring(Ranks& ranks, int rank) {
  const int n = ranks.size();
  const int left = (rank + n - 1) % n;
  for (int step = 1; step < n; ++step) {
    ranks.add(rank, left, (rank + n - step) % n, n);
    ranks.end_round();
  }
  for (int step = 0; step < n - 1; ++step) {
    ranks.copy(rank, left, (rank + n - step) % n, n);
    ranks.end_round();
  }
}
inline Cost ring_formula(int n, std::size_t bytes) {
  Cost cost = all_to_all_formula(n, bytes);
  cost.rounds = cost.steps;  // a rank waits for each message that it passes on
  return cost;
}

/// Bytes of data from which on the ring is faster than the tree over such links, where
/// 2 (n-1) (latency + bytes / n / bandwidth) = 2 levels (latency + bytes / bandwidth).
inline double ring_wins_from(int n, const Link& link) {
  const double levels = static_cast<double>(tree_formula(n, 0).steps) / 2;
  const double others = n - 1;
  return link.latency_s * link.bytes_per_s * (others - levels) / (levels - others / n);
}
