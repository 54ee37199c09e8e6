#include "tessera/comm/batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "comm/batch_check.hpp"
#include "comm/batch_text.hpp"
#include "support/host_tensor.hpp"
#include "support/recording_communicator.hpp"
#include "tessera/base/error.hpp"

namespace tessera::batch_test {
namespace {

using test::HostTensor;
using test::RecordingCommunicator;
using testing::HasSubstr;

// Never dereferenced: these tests look at batches, not at data.
View fp32(std::int64_t elems) {
  static std::array<float, 64> memory;
  return {memory.data(), elems, DType::fp32};
}

std::string refusal(const Batch& batch, int rank, int ranks) {
  try {
    comm::check(batch, rank, ranks);
  } catch (const ContractError& error) { return error.what(); }
  return "accepted";
}

TEST(Batch, SentBytesMatchTheBandwidthOptimalAlgorithm) {
  struct Row {
    Batch batch;
    std::array<std::size_t, 3> by_rank;
  };
  const std::vector<Row> table{
      {Batch{""}.all_gather(fp32(10), fp32(30)), {80, 80, 80}},
      {Batch{""}.reduce_scatter(fp32(30), fp32(10)), {80, 80, 80}},
      {Batch{""}.all_reduce(fp32(30)), {160, 160, 160}},
      {Batch{""}.all_reduce(fp32(1)), {5, 5, 5}},
      {Batch{""}.broadcast(fp32(30), 1), {0, 240, 0}},
      {Batch{""}.reduce(fp32(30), ReduceOp::sum, 1), {120, 0, 120}},
      {Batch{""}.gather(fp32(10), fp32(30), 1), {40, 0, 40}},
  };
  for (const Row& row : table) {
    const CommOp& op = row.batch.ops().front();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(sent_bytes(op, rank, 3), row.by_rank[static_cast<std::size_t>(rank)])
          << name_of(op) << " rank " << rank;
    }
    EXPECT_EQ(sent_bytes(op, 1, 1), 0U) << name_of(op);
  }
}

TEST(Batch, SentBytesCountTheBytesOfTheDtype) {
  HostTensor data{DType::bf16, 30};
  EXPECT_EQ(sent_bytes(Batch{""}.all_reduce(data.view()).ops()[0], 0, 3), 80U);
}

TEST(Batch, SignatureNamesEverythingThatMustAgree) {
  HostTensor wide{DType::fp64, 2};
  const Batch batch = Batch{"loss"}
                          .all_gather(fp32(4), fp32(12))
                          .reduce_scatter(fp32(12), fp32(4), ReduceOp::max)
                          .all_reduce(wide.view())
                          .broadcast(fp32(5), 2)
                          .reduce(fp32(6), ReduceOp::sum, 1)
                          .gather(fp32(7), {}, 0);
  EXPECT_EQ(test::signature(batch, 3),
            "loss: all_gather of 12 fp32; reduce_scatter of 12 fp32 (max); "
            "all_reduce of 2 fp64 (sum); broadcast of 5 fp32 (root 2); "
            "reduce of 6 fp32 (sum, root 1); gather of 21 fp32 (root 0)");
}

comm::NameOfRank in_group(std::vector<int> ranks) {
  return [ranks = std::move(ranks)](int rank) {
    return "rank " + std::to_string(ranks[static_cast<std::size_t>(rank)]);
  };
}

TEST(Batch, FirstDifferenceNamesTheEntryAndTheTwoRanks) {
  const Batch first = Batch{"x"}.all_reduce(fp32(1)).broadcast(fp32(2), 0);
  const Batch late = Batch{"x"}.all_reduce(fp32(1)).broadcast(fp32(2), 1);
  const Batch early = Batch{"x"}.all_reduce(fp32(3)).broadcast(fp32(2), 0);
  const Batch shorter = Batch{"x"}.all_reduce(fp32(1));
  const Batch other{"y"};

  const auto difference = [](std::vector<const Batch*> batches) {
    return comm::first_difference(batches, in_group({0, 1, 2})).value_or("none");
  };
  EXPECT_EQ(difference({&first, &first, &first}), "none");
  EXPECT_EQ(difference({&first, &late, &early}),
            "entry 0 of batch \"x\": rank 2 issued all_reduce of 3 fp32 (sum) where rank 0 issued "
            "all_reduce of 1 fp32 (sum)");
  EXPECT_EQ(difference({&first, &late}),
            "entry 1 of batch \"x\": rank 1 issued broadcast of 2 fp32 (root 1) where rank 0 "
            "issued broadcast of 2 fp32 (root 0)");
  EXPECT_EQ(difference({&first, &shorter}),
            "entry 1 of batch \"x\": rank 1 issued nothing where rank 0 issued broadcast of 2 fp32 "
            "(root 0)");
  EXPECT_EQ(difference({&first, &first, &other}),
            "rank 2 issued batch \"y\" where rank 0 issued batch \"x\"");

  EXPECT_EQ(comm::first_difference(std::vector<const Batch*>{&first, &other}, in_group({1, 5})),
            "rank 5 issued batch \"y\" where rank 1 issued batch \"x\"");
  EXPECT_EQ(comm::first_difference(std::vector<const Batch*>{&first, &shorter}, in_group({1, 5})),
            "entry 1 of batch \"x\": rank 5 issued nothing where rank 1 issued broadcast of 2 fp32 "
            "(root 0)");
}

TEST(BatchCheck, RefusalNamesBatchEntryAndOperation) {
  const Batch batch = Batch{"gather h.0"}.all_reduce(fp32(1)).all_gather(fp32(4), fp32(11));
  EXPECT_EQ(refusal(batch, 0, 3),
            "batch \"gather h.0\", entry 1 (all_gather): full has 11 elements, but shard has 4 and "
            "there are 3 ranks; full must be their product");
}

TEST(BatchCheck, RefusesWhatBreaksTheContract) {
  HostTensor half{DType::bf16, 4};
  alignas(8) std::array<std::byte, 16> bytes{};
  const View askew{bytes.data() + 1, 2, DType::fp32};
  const View null{nullptr, 2, DType::fp32};

  const auto expect_refused = [](const Batch& batch, const std::string& why) {
    EXPECT_THAT(refusal(batch, 1, 3), HasSubstr(why));
  };
  expect_refused(Batch{""}.all_gather(half.view(), fp32(12)), "shard is bf16 but full is fp32");
  expect_refused(Batch{""}.reduce_scatter(fp32(12), half.view()), "shard is bf16 but full is fp32");
  expect_refused(Batch{""}.reduce_scatter(fp32(13), fp32(4)), "full has 13 elements");
  expect_refused(Batch{""}.gather(fp32(4), fp32(11), 1), "full has 11 elements");
  expect_refused(Batch{""}.all_reduce(fp32(-1)), "data has -1 elements");
  expect_refused(Batch{""}.all_reduce(null), "data is null but has 2 elements");
  expect_refused(Batch{""}.all_reduce(askew), "data is not aligned");
  expect_refused(Batch{""}.broadcast(fp32(1), 3), "root 3 is not a rank of 3");
  expect_refused(Batch{""}.reduce(fp32(1), ReduceOp::sum, -1), "root -1 is not a rank of 3");
  expect_refused(Batch{""}.gather(fp32(1), {}, 3), "root 3 is not a rank of 3");
}

TEST(BatchCheck, OnlyTheRootsTargetOfAGatherIsChecked) {
  HostTensor part{DType::fp32, 4};
  EXPECT_EQ(refusal(Batch{""}.gather(part.view(), {}, 0), 1, 3), "accepted");
  EXPECT_NE(refusal(Batch{""}.gather(part.view(), {}, 1), 1, 3), "accepted");
}

TEST(BatchCheck, PartsMayOverlapTheWholeOnlyInPlace) {
  HostTensor memory{DType::fp32, 12};
  const View full = memory.view();
  for (std::int64_t at = 0; at <= 8; ++at) {
    const View part = full.slice(at, 4);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string expected = at == std::int64_t{4} * rank ? "accepted" : "overlaps full";
      EXPECT_THAT(refusal(Batch{""}.all_gather(part, full), rank, 3), HasSubstr(expected));
      EXPECT_THAT(refusal(Batch{""}.reduce_scatter(full, part), rank, 3), HasSubstr(expected));
      EXPECT_THAT(refusal(Batch{""}.gather(part, full, rank), rank, 3), HasSubstr(expected));
    }
  }
}

TEST(BatchCheck, EntriesMayShareWhatTheyOnlyRead) {
  HostTensor shard{DType::fp32, 2};
  HostTensor a{DType::fp32, 6};
  HostTensor b{DType::fp32, 6};
  const Batch reads =
      Batch{"r"}.all_gather(shard.view(), a.view()).all_gather(shard.view(), b.view());
  EXPECT_EQ(refusal(reads, 0, 3), "accepted");

  const Batch writes = Batch{"w"}.all_gather(shard.view(), a.view()).all_reduce(shard.view());
  EXPECT_THAT(refusal(writes, 0, 3), HasSubstr("entry 1 (all_reduce): overlaps entry 0"));

  // Entries are not in the order of their memory, and a long one covers both others.
  const Batch covered = Batch{"c"}
                            .all_reduce(a.view().slice(4, 2))
                            .all_reduce(a.view().slice(0, 1))
                            .all_reduce(a.view().slice(0, 6));
  EXPECT_THAT(refusal(covered, 0, 3), HasSubstr("entry 2 (all_reduce): overlaps entry"));
}

TEST(BatchCheck, ZeroElementsNeedNoMemory) {
  const View none{nullptr, 0, DType::fp32};
  EXPECT_EQ(refusal(Batch{"z"}.all_gather(none, none).all_reduce(none).broadcast(none, 0), 0, 3),
            "accepted");
}

TEST(RecordingCommunicator, KeepsItsArgumentsAndRefusesInvalidOnes) {
  RecordingCommunicator comm{4};
  HostTensor shard{DType::fp32, 5};
  HostTensor full{DType::fp32, 20};
  comm.submit(Batch{"a"}.all_gather(shard.view(), full.view()), Stream{});
  comm.submit(Batch{"b"}.reduce_scatter(full.view(), shard.view()), Stream{});
  EXPECT_THROW(comm.submit(Batch{"c"}.all_gather(full.view(), shard.view()), Stream{}),
               ContractError);

  EXPECT_THAT(comm.signatures(), testing::ElementsAre("a: all_gather of 20 fp32",
                                                      "b: reduce_scatter of 20 fp32 (sum)"));
  EXPECT_EQ(comm.bytes_sent(), 2U * 20 * 4 * 3 / 4);
  EXPECT_EQ(comm.exchange("here"), std::vector<std::string>(4, "here"));

  comm.abort("enough");
  EXPECT_THROW(comm.submit(Batch{"d"}.all_reduce(full.view()), Stream{}), CommError);
}

}  // namespace
}  // namespace tessera::batch_test
