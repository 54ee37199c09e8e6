// Compares what a GPT step sends along each dimension of a mesh with formulas.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "support/mesh_run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::mesh_traffic_test {
namespace {

constexpr int kMicroBatches = 3;
constexpr std::size_t kRows = 16;
constexpr std::size_t kStream = kRows * 60 * sizeof(float);  // the residual stream of a micro-batch

/// The dimension that a batch with this label uses.
std::string dimension_of(const std::string& label) {
  if (label == "step") { return "all"; }
  if (label.find(" on stage ") != std::string::npos || label == "add ties along pipe") {
    return "pipe";
  }
  if (label == "sum rows" || label == "gather statistics") { return "tensor"; }
  return label.ends_with(" across groups") ? "replicate" : "shard";
}

/// Bytes that a rank sends in its second step, by dimension, and bytes of its segments, by kind of
/// unit.
struct Sent {
  std::map<std::string, std::size_t> bytes;
  std::size_t blocks = 0;
  std::size_t ends = 0;
  std::size_t table = 0;
};

Sent sent_by(int rank) {
  MeshRun run;
  run.options = {.strategy = Strategy::zero3,
                 .accumulate = kMicroBatches,
                 .mesh = {{"pipe", 2}, {"replicate", 2}, {"shard", 2}, {"tensor", 2}}};
  Sent sent;
  const auto body = [&](World& world) {
    auto gpt = shard(nn::Decoder{run.config}, world, run.options);
    gpt.materialize(3);
    gpt.optimize_with(AdamW{}, {.clip_norm = 1.0F});
    const std::vector<std::int32_t> tokens(kRows);
    for (int step = 0; step < 2; ++step) {
      world.recorder()->clear();
      gpt.run([&](int) -> nn::MicroBatch { return {tokens, tokens}; });
      gpt.step();
    }
    for (const trace::Record& record : world.recorder()->records()) {
      if (record.kind != trace::Kind::collective) { continue; }
      sent.bytes[dimension_of(record.unit)] += record.bytes;
    }
    ShardedModel& model = gpt.model();
    for (std::size_t u = 0; u < model.unit_count(); ++u) {
      const std::string& name = model.unit_name(model.unit(u));
      std::size_t bytes = 0;
      for (const SegmentLayout& segment : model.layout(model.unit(u)).segments()) {
        bytes += static_cast<std::size_t>(segment.padded_elems()) * sizeof(float);
      }
      (name.starts_with("h.") ? sent.blocks : sent.ends) += bytes;
      if (name == "tokens") { sent.table = bytes; }
    }
  };
  simulate_rank({.rank = rank, .ranks = 16}, body, {.trace = true});
  return sent;
}

// Every dimension has two ranks: an all-gather or a reduce-scatter sends half of the tensor; an
// all-reduce, or a transfer to the next stage, sends all of it.
TEST(MeshTraffic, IsThatOfTheFormulasAlongEveryDimension) {
  for (int rank = 0; rank < 16; ++rank) {
    SCOPED_TRACE(rank);
    const Sent sent = sent_by(rank);
    const bool last = rank >= 8;
    const std::size_t layers = last ? 2 : 3;
    constexpr std::size_t micro_batches = kMicroBatches;
    // Blocks are gathered twice per micro-batch. The ends stay gathered while any micro-batch is in
    // flight: all the time on the first stage, during each micro-batch on the last one.
    const std::size_t gathered =
        2 * micro_batches * sent.blocks + (last ? micro_batches : 1) * sent.ends;
    const std::size_t parameters = sent.blocks + sent.ends;
    EXPECT_EQ(sent.bytes.at("shard"), (gathered + parameters) / 2);
    // Once per step, the reduce-scattered gradients.
    EXPECT_EQ(sent.bytes.at("replicate"), parameters / 2);
    // Per layer two products in each direction, plus the embedding forward or the head backward;
    // for the loss three numbers per row and rank.
    const std::size_t statistics = last ? 3 * kRows * sizeof(float) : 0;
    EXPECT_EQ(sent.bytes.at("tensor"), micro_batches * ((4 * layers + 1) * kStream + statistics));
    // Each stage sends in one direction, and both add their shards of the shared table once.
    EXPECT_EQ(sent.bytes.at("pipe"), micro_batches * kStream + sent.table / 2);
  }
}

}  // namespace
}  // namespace tessera::test::mesh_traffic_test
