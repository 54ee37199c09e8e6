// How a process learns its place and rank in a job from the launcher's variables.
#include "world/job_place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tessera/base/error.hpp"

namespace tessera::test::job_place_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

world::ReadVariable reads(const Variables& variables) {
  return [&variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) { return {}; }
    return found->second;
  };
}

world::FoundPlace place_in(const Variables& variables) {
  const world::ReadVariable read = reads(variables);
  const auto job = world::find_job(read);
  return world::find_place(job.value(), read);
}

comm::HostPort chosen_in(const Variables& variables) {
  return world::chosen_meeting(reads(variables));
}

std::string refusal_of(const Variables& variables) {
  try {
    (void)place_in(variables);
  } catch (const ConfigError& error) { return error.what(); }
  return "nothing";
}

Variables with(Variables all, const Variables& more) {
  for (const auto& [name, value] : more) { all[name] = value; }
  return all;
}

const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "n0"},
                          {"MASTER_PORT", "4711"},
                          {"TORCHELASTIC_RUN_ID", "x"}};
const Variables kSrun{{"SLURM_PROCID", "5"},
                      {"SLURM_NTASKS", "6"},
                      {"SLURM_LOCALID", "2"},
                      {"SLURM_JOB_ID", "77"},
                      {"SLURM_STEP_ID", "1"}};
const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

TEST(JobPlace, IsWhereTorchrunSays) {
  const world::FoundPlace found = place_in(kTorchrun);
  EXPECT_EQ(found.place.rank, 3);
  EXPECT_EQ(found.place.job.size, 8);
  EXPECT_EQ(found.place.meet.text(), "n0:4711");
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 2);
}

TEST(JobPlace, LeavesTorchrunsAgentItsPort) {
  EXPECT_EQ(place_in(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).place.meet.port,
            4712);
  EXPECT_EQ(place_in(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).place.meet.port,
            4711);
  EXPECT_EQ(place_in(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                      {"TESSERA_RENDEZVOUS_PORT", "99"}}))
                .place.meet.port,
            99);
}

TEST(JobPlace, IsWhereTheUserSaysForTesseraAlone) {
  const Variables set{{"TESSERA_RENDEZVOUS_ADDR", "n5"}, {"TESSERA_RENDEZVOUS_PORT", "99"}};
  EXPECT_EQ(place_in(with(kTorchrun, set)).place.meet.text(), "n5:99");
  EXPECT_EQ(place_in(with(kMpirun, set)).place.meet.text(), "n5:99");
  EXPECT_EQ(chosen_in(set).text(), "n5:99");
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"TESSERA_RENDEZVOUS_ADDR", std::string(256, 'n')}})),
              HasSubstr("TESSERA_RENDEZVOUS_ADDR has 256 bytes"));
}

// Variables of another launcher may be left over in the environment of an MPI job.
TEST(JobPlace, AChosenMeetingReadsNoVariableOfALauncher) {
  const comm::HostPort chosen = chosen_in(kTorchrun);
  EXPECT_EQ(chosen.host, "");
  EXPECT_EQ(chosen.port, 0);
}

TEST(JobPlace, OfARestartDiffers) {
  EXPECT_NE(place_in(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).place.job.token,
            place_in(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}})).place.job.token);
}

TEST(JobPlace, UsesTheSecretGivenToItsProcesses) {
  EXPECT_EQ(place_in(kTorchrun).place.job.secret, "");
  EXPECT_EQ(place_in(with(kTorchrun, {{"TESSERA_JOB_SECRET", "s3"}})).place.job.secret, "s3");
  EXPECT_THAT(refusal_of(with(kSrun, {{"TESSERA_JOB_SECRET", std::string(1025, 's')},
                                      {"MASTER_ADDR", "gpu07"}})),
              HasSubstr("TESSERA_JOB_SECRET has 1025 bytes, but at most 1024 are allowed"));
}

TEST(JobPlace, IsTheLoopbackWhereAllAreOnOneMachine) {
  EXPECT_EQ(place_in(kMpirun).place.meet.text(), "127.0.0.1:29500");
  EXPECT_EQ(place_in(kMpirun).local_rank, 1);
  EXPECT_EQ(place_in(with(kSrun, {{"SLURM_NNODES", "1"}})).place.meet.text(), "127.0.0.1:29500");
  EXPECT_EQ(place_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).place.meet.host, "127.0.0.1");
  EXPECT_EQ(
      place_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}}).place.meet.host,
      "127.0.0.1");
}

TEST(JobPlace, AsksForAPlaceThatItCannotKnow) {
  EXPECT_THAT(
      refusal_of(with(kSrun, {{"SLURM_NNODES", "3"}, {"SLURM_JOB_NODELIST", "gpu[07-09]"}})),
      AllOf(HasSubstr("srun (Slurm) started this as one of 6 processes"),
            HasSubstr("MASTER_ADDR=gpu07")));
  EXPECT_THAT(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("set MASTER_ADDR"));
  EXPECT_EQ(place_in(with(kSrun, {{"MASTER_ADDR", "gpu07"}})).place.meet.text(), "gpu07:29500");
}

TEST(JobPlace, RefusesVariablesThatAreNoNumbers) {
  for (const char* port : {"", "x", "0", "-1", "65536", "1e3", "80 "}) {
    EXPECT_THAT(refusal_of(with(kTorchrun, {{"MASTER_PORT", port}})),
                AllOf(HasSubstr("MASTER_PORT is \""), HasSubstr("from 1 to 65535")));
  }
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"LOCAL_RANK", "-1"}})), HasSubstr("LOCAL_RANK"));
}

TEST(JobPlace, ReadsTheFirstHostOfSlurmsLists) {
  EXPECT_EQ(world::first_host("node1"), "node1");
  EXPECT_EQ(world::first_host("a,b[1-2]"), "a");
  EXPECT_EQ(world::first_host("node[07-09,12],gpu1"), "node07");
  EXPECT_EQ(world::first_host("node[3],b"), "node3");
  EXPECT_EQ(world::first_host("node[3,5]"), "node3");
  EXPECT_EQ(world::first_host(""), "");
}

}  // namespace
}  // namespace tessera::test::job_place_test
