#include "tessera/comm/communicator.hpp"

#include <algorithm>

#include "comm/batch_check.hpp"
#include "comm/control/control_text.hpp"
#include "comm/control/rank_names.hpp"
#include "comm/rank_split.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// Exchanges texts: returns every rank's, by rank.
using Tell = std::function<std::vector<std::string>(const std::string& text)>;

// All ranks detect a difference by hash, and only then exchange their full codes.
void expect_same_split(std::uint64_t hash, const comm::RankSplit& split, const Tell& tell,
                       const comm::NameOfRank& name_of) {
  const std::string brief(reinterpret_cast<const char*>(&hash), sizeof hash);
  const auto same = [&](const std::string& other) { return other == brief; };
  if (std::ranges::all_of(tell(brief), same)) { return; }
  throw ContractError{comm::first_difference(tell(comm::encode(split)), name_of)};
}

}  // namespace

void Communicator::submit(Batch batch, Stream stream) {
  comm::check(batch, rank_, size_);
  do_submit(std::move(batch), stream);
}

std::vector<std::string> Communicator::exchange(const std::string& message) {
  return comm::unseal(do_exchange(comm::seal(comm::TextCall::exchange, message)),
                      [this](int rank) { return do_name(job_rank(rank)); });
}

std::unique_ptr<Communicator> Communicator::split(const GroupOf& group_of,
                                                  const std::string& name) {
  return do_split(agree_on_group(group_of, name));
}

std::string Communicator::do_name(int job_rank) const {
  return comm::RankNames{}.of(job_rank);
}

RankGroup Communicator::agree_on_group(const GroupOf& group_of, const std::string& name) {
  const auto names = [this](int rank) { return do_name(job_rank(rank)); };
  const comm::RankSplit split = comm::split_ranks(group_of, size_, name, names);
  RankGroup mine{.name = name,
                 .group = split.groups[static_cast<std::size_t>(rank_)],
                 .members = {},
                 .code = comm::hash_of(split)};
  const auto tell = [&](const std::string& text) {
    return comm::unseal(do_exchange(comm::seal(comm::TextCall::split, text, name)), names);
  };
  if (!do_answer_for_all()) { expect_same_split(mine.code, split, tell, names); }
  for (int rank = 0; rank < size_; ++rank) {
    if (split.groups[static_cast<std::size_t>(rank)] != mine.group) { continue; }
    if (rank == rank_) { mine.rank = static_cast<int>(mine.members.size()); }
    mine.members.push_back(job_rank(rank));
  }
  return mine;
}

}  // namespace tessera
