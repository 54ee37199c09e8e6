#include "tessera/comm/communicator.hpp"

#include <algorithm>

#include "comm/batch_check.hpp"
#include "comm/division.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

void Communicator::submit(Batch batch, Stream stream) {
  check(batch, rank_, size_);
  do_submit(std::move(batch), stream);
}

std::vector<std::string> Communicator::exchange(std::string message) {
  return do_exchange(std::move(message));
}

std::unique_ptr<Communicator> Communicator::split(const GroupOf& group_of,
                                                  const std::string& name) {
  return do_split(agree_on_group(group_of, name));
}

RankGroup Communicator::agree_on_group(const GroupOf& group_of, const std::string& name) {
  const Division division =
      divide(group_of, size_, name, [this](int rank) { return job_rank(rank); });
  const std::string code = encode(division);
  RankGroup mine{.name = name,
                 .group = division.groups[static_cast<std::size_t>(rank_)],
                 .members = {},
                 .code = hash_of(code)};
  expect_same_on_all_ranks(mine.code, code);
  for (int rank = 0; rank < size_; ++rank) {
    if (division.groups[static_cast<std::size_t>(rank)] != mine.group) { continue; }
    if (rank == rank_) { mine.rank = static_cast<int>(mine.members.size()); }
    mine.members.push_back(job_rank(rank));
  }
  return mine;
}

// All ranks see that there is a difference, and only then say all.
void Communicator::expect_same_on_all_ranks(std::uint64_t hash, const std::string& code) {
  const std::string brief(reinterpret_cast<const char*>(&hash), sizeof hash);
  const auto same = [&](const std::string& other) { return other == brief; };
  if (std::ranges::all_of(exchange(brief), same)) { return; }
  const std::vector<std::string> codes = exchange(code);
  throw ContractError{first_difference(codes, [this](int rank) {
                        return job_rank(rank);
                      }).value_or("ranks split a communicator while others made another call")};
}

}  // namespace tessera
