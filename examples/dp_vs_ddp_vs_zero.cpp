// Trains one model under every strategy. Measures each rank's memory and the traffic between each
// pair of ranks, and compares them with textbook formulas. Exit status 1 if a measured number
// differs from its formula. docs/lessons/dp_vs_ddp_vs_zero.md
//
//   dp_vs_ddp_vs_zero [ranks = 4, from 1 to 16]

#include "dp_vs_ddp_vs_zero.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

#include "argument.hpp"
#include "tessera/tessera.hpp"
#include "tessera/world/peer_traffic.hpp"

namespace {

using tessera::Strategy;

constexpr int kLayers = 8;
constexpr std::int64_t kWidth = 16384;
constexpr int kSteps = 3;

// A stack of layers y = x + w x, element by element. Returns this rank's loss, mean(y^2) / 2.
double forward_backward(tessera::ShardedModel& model, const std::vector<tessera::Unit>& layers,
                        int rank) {
  const float seen = 1.0F + 0.01F * static_cast<float>(rank);  // each rank has its own data
  std::vector<std::vector<float>> x{std::vector<float>(kWidth, seen)};
  for (const tessera::Unit layer : layers) {
    const auto p = model.forward(layer);
    const float* w = p["weight"];
    std::vector<float> y = x.back();
    for (std::size_t i = 0; i < y.size(); ++i) { y[i] += w[i] * y[i]; }
    x.push_back(std::move(y));
  }
  std::vector<float> slope = x.back();
  double loss = 0;
  for (const float y : slope) { loss += 0.5 * static_cast<double>(y) * y / kWidth; }
  for (std::size_t l = layers.size(); l-- > 0;) {
    const auto g = model.backward(layers[l]);
    const float* w = g["weight"];
    float* dw = g.grad("weight");
    for (std::size_t i = 0; i < slope.size(); ++i) {
      dw[i] += slope[i] * x[l][i];
      slope[i] += w[i] * slope[i];
    }
  }
  return loss;
}

// Bytes sent so far, once every rank has finished sending.
std::vector<std::size_t> sent_so_far(tessera::World& world) {
  world.gather_channel().stream.wait();
  world.reduce_channel().stream.wait();
  world.barrier();
  std::vector<std::size_t> sent = tessera::peer_traffic(world);
  world.barrier();
  return sent;
}

Rank train(tessera::World& world, const Job& job) {
  tessera::ShardedModel model{world, {.strategy = job.strategy, .shard_group = job.group}};
  std::vector<tessera::Unit> layers;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(model.add_unit("layer." + std::to_string(i), {{"weight", {kWidth}}}));
  }
  model.materialize(tessera::init::normal(/*seed=*/1, 0.05F));
  model.optimize_with(tessera::AdamW{.lr = 0.01F});

  std::vector<std::size_t> before;
  for (int step = 0; step < kSteps; ++step) {
    before = sent_so_far(world);
    const double loss = forward_backward(model, layers, world.rank());
    model.step(&loss);
  }
  const std::vector<std::size_t> after = sent_so_far(world);
  const auto at_peak = world.memory().report().at_peak;
  const auto& weights = model.layout(layers[0]).segments()[0];
  Rank rank{.held = {model.state_bytes(),
                     at_peak[tessera::Category::gather] + at_peak[tessera::Category::reduce]},
            .sent = {},
            .loss = model.report().loss,
            .layer = sizeof(float) * static_cast<std::size_t>(weights.padded_elems())};
  for (std::size_t to = 0; to < after.size(); ++to) { rank.sent.push_back(after[to] - before[to]); }
  return rank;
}

std::vector<Rank> train_all(Job& job) {
  std::vector<Rank> ranks(static_cast<std::size_t>(job.ranks));
  tessera::WorldOptions options;
  options.trace = true;  // counts who sends to whom
  tessera::run_ranks(
      job.ranks,
      [&](tessera::World& world) {
        ranks[static_cast<std::size_t>(world.rank())] = train(world, job);
      },
      options);
  job.layer = ranks[0].layer;
  job.model = kLayers * job.layer;
  return ranks;
}

std::size_t sent(const std::vector<Rank>& ranks, std::size_t rank) {
  return std::accumulate(ranks[rank].sent.begin(), ranks[rank].sent.end(), std::size_t{0});
}

std::size_t received(const std::vector<Rank>& ranks, std::size_t rank) {
  std::size_t bytes = 0;
  for (const Rank& from : ranks) { bytes += from.sent[rank]; }
  return bytes;
}

double kib(std::size_t bytes) {
  return static_cast<double>(bytes) / 1024;
}

// Prints one line per rank. Returns whether all measurements match the formulas.
bool print(const Job& job, const std::vector<Rank>& ranks) {
  bool same = true;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Rank& rank = ranks[r];
    const auto& [state, slots] = rank.held;
    same = same && rank.held == held_by_formula(job, static_cast<int>(r));
    const std::string name = r == 0 ? std::string{to_string(job.strategy)} : "";
    std::printf("%-6s %4zu %7.0f %7.0f %7.0f %7.0f  |", name.c_str(), r, kib(state.parameters),
                kib(state.gradients), kib(state.optimizer), kib(slots));
    for (std::size_t to = 0; to < ranks.size(); ++to) {
      same =
          same && rank.sent[to] == sent_by_formula(job, static_cast<int>(r), static_cast<int>(to));
      std::printf(" %5.0f", kib(rank.sent[to]));
    }
    const std::size_t out = sent(ranks, r);
    const std::size_t in = received(ranks, r);
    std::printf("  | %6.0f %6.0f %6.0f\n", kib(out), kib(in), kib(out + in));
  }
  std::printf("       %s %s\n\n", same ? "=" : "NOT", formulas(job.strategy));
  return same;
}

void print_head(int ranks) {
  std::printf("%d layers of %lld parameters on %d ranks, fp32, AdamW; KiB, measured\n", kLayers,
              static_cast<long long>(kWidth), ranks);
  std::printf("(P, L: the parameters of all, of a layer; N, S: ranks of all, of a group)\n\n");
  std::printf("       rank  params   grads   optim   slots  | sent in a step to rank\n%45s", "|");
  for (int to = 0; to < ranks; ++to) { std::printf(" %5d", to); }
  std::printf("  |   sent    got   both\n");
}

// Trains under every strategy. Returns whether all is as expected.
bool compare(int ranks) {
  print_head(ranks);
  bool counted = true;
  double loss = 0;
  double apart = 0;
  double hybrid_apart = 0;
  for (const Strategy strategy : tessera::all_strategies()) {
    const bool hybrid = strategy == Strategy::hybrid;
    const int half = ranks % 2 == 0 ? ranks / 2 : ranks;
    Job job{.ranks = ranks, .strategy = strategy, .group = hybrid ? half : 0};
    const std::vector<Rank> measured = train_all(job);
    counted = print(job, measured) && counted;
    if (strategy == Strategy::dp) { loss = measured[0].loss; }
    double& difference = hybrid ? hybrid_apart : apart;
    difference = std::max(difference, std::abs(measured[0].loss - loss));
  }
  std::printf("bytes: %s the formulas (and %d to and from rank 0, for norms and loss)\n",
              counted ? "all as in" : "NOT as in", ranks > 1 ? 8 * (ranks + 1) : 0);
  std::printf("loss of step %d: %.9f, %s under dp ... zero3; hybrid %.1e apart\n", kSteps, loss,
              apart == 0 ? "the same bits" : "NOT the same", hybrid_apart);
  return counted && apart == 0 && hybrid_apart <= 1e-6 * loss;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return compare(only_argument(argc, argv, 1, 16, 4)) ? 0 : 1;
  } catch (const tessera::ConfigError& error) {
    std::fprintf(stderr, "dp_vs_ddp_vs_zero: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dp_vs_ddp_vs_zero: %s\n", error.what());
    return 1;
  }
}
