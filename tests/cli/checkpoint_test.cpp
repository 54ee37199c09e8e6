// tessera checkpoint: list, inspect, verify, diff, export, merge.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>

#include "checkpoint/checksum.hpp"
#include "checkpoint/part.hpp"
#include "cli/command.hpp"
#include "cli/divided_checkpoint.hpp"
#include "support/small_checkpoint.hpp"
#include "tessera/base/half.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::read_bytes;
using test::small_state;
using test::StateTensor;
using test::write_checkpoint;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class CheckpointCommand : public test::CommandTest {
 protected:
  // Two checkpoints of a run.
  CheckpointCommand() {
    write("run/step-00000003", small_state(), 3);
    write("run/step-00000012", small_state(), 12);
  }
  void write(const std::string& name, const std::vector<StateTensor>& tensors, std::int64_t step,
             std::uint64_t shard_bytes = 1'000) {
    Manifest manifest = write_checkpoint(path(name), tensors, shard_bytes);
    manifest.step = step;
    test::write_bytes(path(name) + "/manifest.json", checkpoint::format_manifest(manifest));
  }
  [[nodiscard]] Outcome checkpoint(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "checkpoint");
    return tessera(std::move(arguments));
  }
  void refused(std::vector<std::string> arguments, const std::vector<std::string>& words) const {
    const Outcome outcome = checkpoint(std::move(arguments));
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    for (const std::string& word : words) { EXPECT_THAT(outcome.err, HasSubstr(word)); }
  }
  void damage(const std::string& file) const {
    std::string bytes = read_bytes(path(file));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    test::write_bytes(path(file), bytes);
  }
  void cut(const std::string& file) const {
    fs::resize_file(path(file), fs::file_size(path(file)) - 1);
  }
};

TEST_F(CheckpointCommand, ListsCheckpointsAndNamesDamagedOnes) {
  cut("run/step-00000003/optimizer.safetensors");
  const Outcome outcome = checkpoint({"list", path("run")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("step-00000012"));
  EXPECT_THAT(outcome.out, HasSubstr("complete"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("damaged:"), HasSubstr("optimizer.safetensors")));
  fs::create_directory(path("empty"));
  EXPECT_THAT(checkpoint({"list", path("empty")}).out, HasSubstr("no checkpoints"));
  refused({"list", path("missing")}, {path("missing"), "no folder"});
  refused({"list", path("run/step-00000012")}, {"is one checkpoint", "(" + path("run") + ")"});
}

TEST_F(CheckpointCommand, InspectShowsTheNewestAndWritesAllAsJson) {
  const Outcome outcome = checkpoint({"inspect", path("run"), "--json", path("json")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* const word :
       {"step 12", "8 tensors", "loss_scale", "65536", "data_position", "zero3", "h.weight", "BF16",
        "[5, 7]", "remainders", "scales of moments", "buffers"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
  const auto json = nlohmann::json::parse(read_bytes(path("json")));
  EXPECT_EQ(json.at("step"), 12);
  EXPECT_EQ(json.at("tensors").size(), 8U);
  EXPECT_EQ(json.at("tensors")[0].at("shape"), nlohmann::json({5, 7}));
  EXPECT_EQ(json.at("state").at("steps"), "12");
  EXPECT_EQ(json.at("provenance").at("ranks"), 4);
  cut("run/step-00000012/optimizer.safetensors");
  const Outcome older = checkpoint({"inspect", path("run")});
  EXPECT_EQ(older.status, 0);
  EXPECT_THAT(older.out, HasSubstr("step 3"));
  EXPECT_THAT(older.err, AllOf(HasSubstr("damaged"), HasSubstr("step-00000012")));
}

TEST_F(CheckpointCommand, VerifyFindsDamageAndNamesIt) {
  const Outcome whole = checkpoint({"verify", path("run")});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out, AllOf(HasSubstr("step-00000012: whole"), Not(HasSubstr("\033"))));
  damage("run/step-00000012/extras.safetensors");
  refused({"verify", path("run")}, {"step-00000012/extras.safetensors", "'running'", "bytes"});
  EXPECT_EQ(checkpoint({"verify", path("run/step-00000003")}).status, 0);
  refused({"verify", path("missing")}, {path("missing"), "no checkpoint"});
  refused({"verify", path("run/step-00000003/model.safetensors")}, {"is a file; give the folder"});
}

TEST_F(CheckpointCommand, VerifyJudgesWeightsStateAndBuffersApart) {
  const std::string step = "run/step-00000012";
  damage(step + "/optimizer.safetensors");
  const Outcome outcome = checkpoint({"verify", path(step)});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, MatchesRegex("  weights          whole \\(4 tensors, .*\n"
                                        "  master weights   whole \\(1 tensor, .*\n"
                                        "  optimizer state  damaged\n"
                                        "  buffers          whole \\(1 tensor, .*\n"));
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("'h.weight.moment_0'"), HasSubstr("weights are whole"),
                                 HasSubstr("export")));
}

// A damaged optimizer file must not keep anybody from whole weights, and the reverse.
TEST_F(CheckpointCommand, ExportNeedsOnlyWhatItWrites) {
  const std::string step = "run/step-00000012";
  const auto exported = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"export", path(step), "--to", path("w.safetensors")};
    all.insert(all.end(), more.begin(), more.end());
    return checkpoint(all).status;
  };
  damage(step + "/optimizer.safetensors");  // a moment
  EXPECT_EQ(exported({}), 0);
  EXPECT_EQ(exported({"--masters"}), 0);
  cut(step + "/optimizer.safetensors");
  cut("run/step-00000003/optimizer.safetensors");
  EXPECT_EQ(exported({}), 0);
  EXPECT_EQ(exported({"--masters"}), 2);
  const Outcome of_run = checkpoint({"export", path("run"), "--to", path("w.safetensors")});
  EXPECT_EQ(of_run.status, 0) << of_run.err;
  EXPECT_THAT(of_run.out, HasSubstr("of step 12"));
  fs::remove(path(step) + "/optimizer.safetensors");
  fs::remove(path(step) + "/extras.safetensors");
  EXPECT_EQ(exported({}), 0);
  cut(step + "/model.safetensors");
  EXPECT_EQ(exported({}), 2);
}

TEST_F(CheckpointCommand, AStrayFileOfAPartChangesNothing) {
  const std::string step = path("run/step-00000012");
  test::write_bytes(step + "/part.json", "no part");
  test::write_bytes(path("run/part.json"), "no part");
  for (const std::string& whole : {step, path("run")}) {
    const Outcome outcome = checkpoint({"verify", whole});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("step-00000012: whole"));
    EXPECT_EQ(checkpoint({"inspect", whole}).status, 0);
  }
  EXPECT_EQ(checkpoint({"list", path("run")}).status, 0);
}

TEST_F(CheckpointCommand, DiffSaysWhatDiffersAndByHowMuch) {
  const Outcome same = checkpoint({"diff", path("run/step-00000003"), path("run/step-00000012")});
  EXPECT_EQ(same.status, 0) << same.err << same.out;
  EXPECT_THAT(same.out, HasSubstr("hold the same"));

  std::vector<StateTensor> other = small_state();
  other[1].data = test::bytes_of_values<float>({1, 2, 3});
  write("a", other, 3);
  other[1].data = test::bytes_of_values<float>({1, 2.5F, 2});
  other.erase(other.begin() + 3);  // scale
  other[4].data[7] ^= 1;           // moment_0
  other[2].shape = {4, 0};         // empty
  other[6].name = "another";       // the buffer
  write("b", other, 3);
  const Outcome outcome = checkpoint({"diff", path("a"), path("b")});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  for (const char* const word :
       {"weight 'frozen' differs in 2 of 3 elements, at most by 1", "weight 'scale' is in",
        "moment 'h.weight.moment_0' differs in 1 of 35", "shape [0, 4] and [4, 0]",
        "extra 'another' is in", "6 differences"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
}

TEST_F(CheckpointCommand, ExportWritesTheWeightsInTheRequestedDtype) {
  for (const auto& [dtype, expected] :
       std::map<std::string, std::string>{{"", "BF16"}, {"fp32", "F32"}, {"fp16", "F16"}}) {
    std::vector<std::string> arguments{"export", path("run"), "--to", path("w.safetensors")};
    if (!dtype.empty()) {
      arguments.insert(arguments.end(), {"--dtype", dtype, "--allow-infinities"});
    }
    const Outcome outcome = checkpoint(arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    SafetensorsReader reader{path("w.safetensors")};
    SafetensorsReader from{path("run/step-00000012")};
    ASSERT_EQ(reader.entries().size(), 4U);
    EXPECT_EQ(reader.entries().at("h.weight").dtype, expected);
    std::vector<float> values(35);
    std::vector<float> wanted(35);
    reader.read("h.weight", 0, values);
    from.read("h.weight", 0, wanted);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float rounded = dtype == "fp16" ? float16::from_float(wanted[i]).to_float() : wanted[i];
      EXPECT_TRUE(values[i] == rounded || (std::isnan(values[i]) && std::isnan(rounded))) << i;
    }
  }
}

// A reader of the file would compute infinities where the training had numbers.
TEST_F(CheckpointCommand, ExportRefusesValuesBeyondTheDtypeUnlessAskedToWriteInfinities) {
  write("large",
        {{"model",
          "big",
          "weight",
          "F32",
          {4},
          256,
          test::bytes_of_values(std::vector<float>{1.0F, -70'000.0F, 65'519.0F, 1e9F})},
         {"model",
          "inf",
          "weight",
          "F32",
          {1},
          256,
          test::bytes_of_values(std::vector<float>{std::numeric_limits<float>::infinity()})},
         {"model",
          "huge",
          "weight",
          "F32",
          {1},
          256,
          test::bytes_of_values(std::vector<float>{3.4e38F})}},
        1);
  std::vector<std::string> arguments{"export",  path("large"), "--to", path("w.safetensors"),
                                     "--dtype", "fp16"};
  refused(arguments, {"--dtype", "'big'", "2 of its values, the first -70000 at element 1",
                      "range of fp16", "--allow-infinities"});
  EXPECT_FALSE(fs::exists(path("w.safetensors")));
  std::vector<std::string> to_folder = arguments;
  to_folder[3] = path("folder");
  refused(to_folder, {"'big'"});
  EXPECT_FALSE(fs::exists(path("folder")));
  arguments.push_back("--allow-infinities");
  const Outcome outcome = checkpoint(arguments);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("warning"), HasSubstr("'big': 2 of its values"),
                                 HasSubstr("'huge': 1 of its values"), Not(HasSubstr("'inf'"))));
  arguments[5] = "bf16";
  EXPECT_THAT(checkpoint(arguments).err, AllOf(HasSubstr("'huge'"), Not(HasSubstr("'big'"))));
  refused({"export", path("large"), "--to", path("w.safetensors"), "--allow-infinities"},
          {"--allow-infinities has no effect without --dtype"});
}

// Names come from files that others wrote. A terminal obeys escape sequences; a line of 100,000
// bytes hides what went wrong.
TEST_F(CheckpointCommand, NamesOfAnyBytesReachTheTerminalShown) {
  const std::string evil = "\x1b]0;title\a\x1b[2J\r\n" + std::string(100'000, 'x');
  const auto with_names = [&](const std::string& folder, std::int64_t step, unsigned char seed) {
    std::vector<StateTensor> tensors = small_state();
    for (StateTensor& tensor : tensors) {
      tensor.name = evil + tensor.name;
      for (char& c : tensor.data) { c = static_cast<char>(static_cast<unsigned char>(c) ^ seed); }
    }
    Manifest manifest = write_checkpoint(path(folder), tensors, 1'000);
    manifest.step = step;
    manifest.values = {{evil, evil},      {"lr", evil},           {"mesh", evil},
                       {"moments", evil}, {"data.content", evil}, {"data.epoch", evil}};
    test::write_bytes(path(folder) + "/manifest.json", checkpoint::format_manifest(manifest));
  };
  with_names("evil/step-00000003", 3, 0);
  with_names("evil/step-00000012", 12, 1);
  const std::string one = path("evil/step-00000003");
  const std::string other = path("evil/step-00000012");
  ASSERT_EQ(checkpoint({"verify", one}).status, 0) << "nothing would quote the names";
  const auto check = [&](const Outcome& outcome, const std::string& what) {
    SCOPED_TRACE(what);
    std::size_t line = 0;
    for (const char c : outcome.out + "\n" + outcome.err) {
      line = c == '\n' ? 0 : line + 1;
      ASSERT_LT(line, 4'000U);
      ASSERT_FALSE(c != '\n' && c != '\t' && static_cast<unsigned char>(c) < 0x20);
    }
  };
  const auto all_of = [&](const std::string& state) {
    check(checkpoint({"list", path("evil")}), "list " + state);
    check(checkpoint({"inspect", one}), "inspect " + state);
    check(checkpoint({"verify", one}), "verify " + state);
    check(checkpoint({"diff", one, other}), "diff " + state);
    check(checkpoint({"diff", one, path("run/step-00000003")}), "diff with another " + state);
    check(checkpoint({"export", one, "--to", path("w.safetensors"), "--dtype", "fp16"}),
          "export " + state);
    check(checkpoint({"export", one, "--to", path("w.safetensors"), "--masters"}),
          "export masters " + state);
    const std::vector<std::string> sizes = {"--layers", "1", "--hidden", "8",
                                            "--heads",  "2", "--seq",    "8"};
    for (std::vector<std::string> run :
         {std::vector<std::string>{"sample", "--count", "1", "--init", one},
          {"train", "--data", path("text.txt"), "--steps", "1", "--resume-from", one},
          {"train", "--data", path("text.txt"), "--steps", "1", "--init", one}}) {
      const std::string command = run[0] + " " + run[run.size() - 2];
      run.insert(run.end(), sizes.begin(), sizes.end());
      check(tessera(run), command + " " + state);
    }
  };
  all_of("whole");
  for (const char* const file :
       {"model.safetensors", "optimizer.safetensors", "extras.safetensors"}) {
    const std::string bytes = read_bytes(one + "/" + file);
    damage(std::string{"evil/step-00000003/"} + file);
    all_of(std::string{file} + " damaged");
    test::write_bytes(one + "/" + file, bytes);
  }
  std::string manifest = read_bytes(one + "/manifest.json");
  manifest.replace(manifest.find("BF16"), 4, "U\x01Z9");
  test::write_bytes(one + "/manifest.json", manifest);
  all_of("with an unknown dtype");
}

TEST_F(CheckpointCommand, ExportDividesAFolderAndRefusesOneThatHasWeights) {
  const Outcome outcome =
      checkpoint({"export", path("run"), "--to", path("folder"), "--shard-size", "75"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(path("folder/model-00001-of-00002.safetensors")));
  EXPECT_EQ(SafetensorsReader{path("folder")}.entries().size(), 4U);
  refused({"export", path("run"), "--to", path("folder")}, {"--to", "index.json already"});
  refused({"export", path("run"), "--to", path("w.safetensors"), "--shard-size", "75"},
          {"--shard-size", "no effect"});
  damage("run/step-00000012/model.safetensors");
  refused({"export", path("run"), "--to", path("new.safetensors")}, {"'scale'", "damaged"});
  EXPECT_FALSE(fs::exists(path("new.safetensors")));
}

TEST_F(CheckpointCommand, NothingIsWrittenIntoACheckpoint) {
  const std::string step = path("run/step-00000003");
  fs::create_directories(path("part"));
  test::write_bytes(path("part/part.json"), "{}");
  for (const std::string& to : {step + "/model.safetensors", step + "/new.safetensors", step,
                                path("part"), path("part/w.safetensors")}) {
    refused({"export", path("run"), "--to", to, "--dtype", "fp32"}, {"--to", "is a checkpoint"});
  }
  refused({"inspect", path("run"), "--json", step + "/manifest.json"},
          {"--json", step, "is a checkpoint"});
  refused({"merge", path("run"), "--to", step}, {"--to", step, "is a checkpoint"});
  EXPECT_EQ(checkpoint({"verify", step}).status, 0);
  EXPECT_FALSE(fs::exists(step + "/new.safetensors"));
}

// A remainder and its weight give the exact master.
TEST_F(CheckpointCommand, ExportJoinsMasters) {
  const std::vector<float> masters{1.0F, -1.00390625F, 3.14159274F, 1e-30F, -65504.0F};
  std::vector<std::uint16_t> upper;
  std::vector<std::uint16_t> lower;
  for (const float master : masters) {
    const auto bits = std::bit_cast<std::uint32_t>(master);
    upper.push_back(static_cast<std::uint16_t>((bits + 0x8000U) >> 16U));
    lower.push_back(static_cast<std::uint16_t>(bits));
  }
  write("remainders",
        {{"model", "w", "weight", "BF16", {5}, 128, test::bytes_of_values(upper)},
         {"optimizer", "w.remainder", "remainder", "U16", {5}, 128, test::bytes_of_values(lower)}},
        1);
  write("masters",
        {{"model", "w", "weight", "BF16", {5}, 128, test::bytes_of_values(upper)},
         {"optimizer", "w.master", "master", "F32", {5}, 256, test::bytes_of_values(masters)}},
        1);
  for (const char* const kind : {"remainders", "masters"}) {
    const Outcome outcome =
        checkpoint({"export", path(kind), "--masters", "--to", path("m.safetensors")});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    SafetensorsReader reader{path("m.safetensors")};
    EXPECT_EQ(reader.entries().at("w").dtype, "F32");
    std::vector<float> values(5);
    reader.read("w", 0, values);
    EXPECT_EQ(values, masters) << kind;
  }
  write("none", {{"model", "w", "weight", "BF16", {5}, 128, test::bytes_of_values(upper)}}, 1);
  refused({"export", path("none"), "--masters", "--to", path("m.safetensors")},
          {"--masters", "no master weights"});
}

// The parts of two machines.
class CheckpointMerge : public CheckpointCommand {
 protected:
  CheckpointMerge() {
    write("whole/step-00000012", small_state(), 12, 60);
    divided_.emplace(path("whole/step-00000012"));
    parts_ = divided_->parts.data();
  }
  void save_parts() const {
    for (int p = 0; p < 2; ++p) { divided_->write(p, path("machine-" + std::to_string(p))); }
  }
  [[nodiscard]] std::vector<std::string> merge() const {
    return {"merge", path("machine-1"), path("machine-0"), "--to", path("joined")};
  }

  std::optional<test::DividedCheckpoint> divided_;
  checkpoint::CheckpointPart* parts_ = nullptr;  // of `divided_`
};

TEST_F(CheckpointMerge, MergedPartsHaveTheBytesOfOneCheckpoint) {
  save_parts();
  EXPECT_EQ(checkpoint({"verify", path("machine-1/step-00000012.part-1")}).status, 0);
  EXPECT_THAT(checkpoint({"list", path("machine-1")}).out, HasSubstr("part 1 of 2"));
  const Outcome outcome = checkpoint(merge());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const auto& entry : fs::directory_iterator{path("whole/step-00000012")}) {
    if (entry.path().filename() == checkpoint::kProvenanceName) { continue; }
    EXPECT_EQ(read_bytes(path("joined/step-00000012") / entry.path().filename()),
              read_bytes(entry.path()))
        << entry.path();
  }
}

// Where no tensor lies, no checksum of a tensor finds damage.
TEST_F(CheckpointMerge, RefusesADamagedHeaderOfAPart) {
  save_parts();
  const std::string file = path("machine-0/step-00000012.part-0/model.safetensors.index.json");
  std::string bytes = read_bytes(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  test::write_bytes(file, bytes);
  refused({"verify", path("machine-0/step-00000012.part-0")}, {file, "differ"});
  refused(merge(), {file});
  EXPECT_FALSE(fs::exists(path("joined/step-00000012")));
}

TEST_F(CheckpointMerge, ReportsANewerSaveThatItSkips) {
  save_parts();
  checkpoint::CheckpointPart newer = parts_[1];
  newer.save = "a newer save";
  newer.manifest.step = 15;
  fs::copy(path("machine-1/step-00000012.part-1"), path("machine-1/step-00000015.part-1"));
  test::write_bytes(path("machine-1/step-00000015.part-1/part.json"),
                    checkpoint::format_part(newer));
  const Outcome outcome = checkpoint(merge());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("step 15 is passed over"), HasSubstr("only part 1"),
                                 HasSubstr("step 12 is joined")));
}

TEST_F(CheckpointMerge, RefusesPartsThatDoNotMakeAWhole) {
  save_parts();
  refused({"merge", path("machine-0"), "--to", path("joined")}, {"part 1 is missing"});
  refused({"merge", path("machine-0"), path("machine-0"), "--to", path("joined")},
          {"part 0 is given twice"});
  refused({"merge", path("run"), "--to", path("joined")}, {path("run"), "no parts"});

  const checkpoint::CheckpointPart good = parts_[1];
  parts_[1].ranges.pop_back();
  save_parts();
  refused(merge(), {"is in no part"});
  parts_[1] = good;
  parts_[1].ranges.insert(parts_[1].ranges.begin(), {parts_[1].ranges[0].file, 0, 8});
  save_parts();
  refused(merge(), {"also in another part"});
  parts_[1] = good;
  parts_[1].manifest.values["note"] = "another";
  save_parts();
  refused(merge(), {"list different contents"});
  parts_[1] = good;
  parts_[1].manifest.tensors[0].sums[0] += 1;
  save_parts();
  refused(merge(), {"'h.weight'", "damaged"});
  EXPECT_FALSE(fs::exists(path("joined/step-00000012")));
}

TEST_F(CheckpointCommand, NamesUnknownArguments) {
  refused({}, {"checkpoint --help"});
  refused({"verfy", path("run")}, {"did you mean verify?"});
  refused({"verify"}, {"takes PATH", "0 are given"});
  refused({"diff", path("run")}, {"takes A B", "1 is given"});
  refused({"verify", path("run"), "--json", path("x")}, {"'--json'"});
  refused({"export", path("run")}, {"needs --to"});
  refused({"export", path("run"), "--to", path("x"), "--dtype", "int8"}, {"--dtype", "fp32"});
  refused({"export", path("run"), "--to", path("x"), "--shard-size", "0"}, {"--shard-size"});
  refused({"inspect", path("run"), "--json", path("missing/x")}, {"--json", "missing"});
  const Outcome help = checkpoint({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* const action : {"list", "inspect", "verify", "diff", "export", "merge"}) {
    EXPECT_THAT(help.out, HasSubstr(action));
    EXPECT_EQ(checkpoint({action, "--help"}).status, 0);
  }
}

}  // namespace
}  // namespace tessera::checkpoint_test
