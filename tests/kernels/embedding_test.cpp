#include "kernels/embedding/embedding.hpp"

#include "kernels/values.hpp"
#include "tessera/shard/ranges.hpp"

namespace tessera::kernels::embedding_test {
namespace {

TEST(EmbeddingReference, ByHand) {
  const std::vector<std::int32_t> tokens{1, 0, 1, 1};  // batch 2, seq 2
  const Floats token_table{1, 2, 10, 20};
  const Floats position_table{100, 200, 1000, 2000};
  Floats y(8, kNan);
  reference::embedding_forward(
      {tokens.data(), token_table.data(), position_table.data(), y.data(), 2, 2, 2}, Stream{});
  EXPECT_EQ(y, (Floats{110, 220, 1001, 2002, 110, 220, 1010, 2020}));

  const Floats dy{1, 2, 3, 4, 5, 6, 7, 8};
  Floats dtokens{0, 0, 0.5F, 0}, dpositions(4, 0.0F);
  reference::embedding_backward(
      {tokens.data(), dy.data(), dtokens.data(), dpositions.data(), 2, 2, 2}, Stream{});
  EXPECT_EQ(dtokens, (Floats{3, 4, 13.5F, 16}));
  EXPECT_EQ(dpositions, (Floats{6, 8, 10, 12}));
}

struct Shape {
  std::int64_t batch, seq, hidden, vocab;
};
// Tokens that occur often, once and never; rows of whole packs and others; one warp and more. The
// last shapes have runs of equal tokens: one warp's worth, one more, and hundreds.
constexpr Shape kShapes[] = {{0, 3, 8, 5},       {1, 1, 1, 1},    {2, 3, 7, 4},    {2, 3, 45, 4},
                             {3, 9, 37, 11},     {2, 100, 64, 3}, {5, 33, 8, 40},  {1, 70, 264, 1},
                             {4, 31, 300, 1000}, {1, 128, 8, 1},  {1, 129, 70, 1}, {4, 200, 72, 3}};

std::vector<std::int32_t> tokens_of(const Shape& shape) {
  std::mt19937 generator{1};
  std::uniform_int_distribution<std::int64_t> uniform{0, shape.vocab - 1};
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < shape.batch * shape.seq; ++i) {
    tokens.push_back(static_cast<std::int32_t>(uniform(generator)));
  }
  return tokens;
}

/// Where the document of each token begins in its sample.
std::vector<std::int32_t> documents_of(const Shape& shape) {
  std::mt19937 generator{8};
  std::vector<std::int32_t> first_key;
  for (std::int64_t at = 0; at < shape.batch * shape.seq; ++at) {
    const auto t = static_cast<std::int32_t>(at % shape.seq);
    const bool begins = t == 0 || generator() % 5 == 0;
    first_key.push_back(begins ? t : first_key.back());
  }
  return first_key;
}

/// body(shape, dtype of the activations, dtype of the tables, offset of all arrays).
template <class Body>
void for_all(Body body) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kValueDTypes) {
      for (const DType table : kValueDTypes) {
        for (const std::int64_t offset : {0, 1}) {
          SCOPED_TRACE(testing::Message() << shape.batch << " x " << shape.seq << " x "
                                          << shape.hidden << ", starting at " << offset);
          body(shape, dtype, table, offset);
        }
      }
    }
  }
}

class EmbeddingKernels : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, EmbeddingKernels, backends(), backend_name);

TEST_P(EmbeddingKernels, ForwardHasTheBitsOfTheReference) {
  for_all([&](const Shape& shape, DType dtype, DType tables, std::int64_t offset) {
    const auto [batch, seq, hidden, vocab] = shape;
    const std::vector<std::int32_t> tokens = tokens_of(shape);
    const Floats wte = random_floats(vocab * hidden, 2), wpe = random_floats((seq + 2) * hidden, 3);
    HostValues host_wte{tables, wte}, host_wpe{tables, wpe};
    HostValues expected{dtype, filled(batch * seq * hidden, kNan)};
    reference::embedding_forward(
        {tokens.data(), host_wte.view(), host_wpe.view(), expected.view(), batch, seq, hidden},
        Stream{});
    DeviceArray<std::int32_t> device_tokens{bench(), tokens};
    DeviceValues device_wte{bench(), wte, tables, offset};
    DeviceValues device_wpe{bench(), wpe, tables, offset};
    DeviceValues y{bench(), batch * seq * hidden, dtype, offset};
    table().embedding_forward({device_tokens.data(), device_wte, device_wpe, y, batch, seq, hidden},
                              stream());
    EXPECT_EQ(y.read(), expected.bytes());
  });
}

/// Gradients of both tables, on the host and on the device.
struct Gradients {
  Shape shape;
  std::vector<std::int32_t> tokens;
  HostValues host_dy, host_tokens, host_positions;
  DeviceArray<std::int32_t> device_tokens;
  DeviceValues dy, dtokens, dpositions;
  std::vector<std::int32_t> first_key = {};    ///< empty: none
  const std::int32_t* device_first = nullptr;  ///< the same on the device

  Gradients(DeviceBench& bench, const Shape& of, DType dtype, DType tables, std::int64_t offset)
      : shape{of},
        tokens{tokens_of(of)},
        host_dy{dtype, random_floats(of.batch * of.seq * of.hidden, 4)},
        host_tokens{tables, random_floats(of.vocab * of.hidden, 5)},
        host_positions{tables, random_floats((of.seq + 2) * of.hidden, 6)},
        device_tokens{bench, tokens},
        dy{bench, host_dy.floats(), dtype, offset},
        dtokens{bench, host_tokens.floats(), tables, offset},
        dpositions{bench, host_positions.floats(), tables, offset} {}

  void run(const Table& table, Stream stream, bool of_tokens = true, bool of_positions = true) {
    const auto [batch, seq, hidden, vocab] = shape;
    EmbeddingBackward on_host{tokens.data(),
                              host_dy.view(),
                              of_tokens ? host_tokens.view() : nullptr,
                              of_positions ? host_positions.view() : nullptr,
                              batch,
                              seq,
                              hidden};
    on_host.first_key = first_key.empty() ? nullptr : first_key.data();
    reference::embedding_backward(on_host, Stream{});
    EmbeddingBackward on_device{device_tokens.data(),
                                dy,
                                of_tokens ? dtokens.values() : nullptr,
                                of_positions ? dpositions.values() : nullptr,
                                batch,
                                seq,
                                hidden};
    on_device.first_key = device_first;
    table.embedding_backward(on_device, stream);
  }
  void expect_equal() {
    EXPECT_EQ(dtokens.read(), host_tokens.bytes());
    EXPECT_EQ(dpositions.read(), host_positions.bytes());
  }
};

TEST_P(EmbeddingKernels, ForwardWithoutPositionsCopiesRows) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const std::int64_t hidden : {45, 64}) {
      const Shape shape{2, 5, hidden, 7};
      const std::vector<std::int32_t> tokens = tokens_of(shape);
      Floats wte = rounded(dtype, random_floats(shape.vocab * hidden, 2));
      wte[0] = -0.0F;
      Floats expected;
      for (const std::int32_t token : tokens) {
        const auto row = wte.begin() + token * hidden;
        expected.insert(expected.end(), row, row + hidden);
      }
      DeviceArray<std::int32_t> device_tokens{bench(), tokens};
      DeviceValues table_values{bench(), wte, dtype}, y{bench(), std::ssize(expected), dtype};
      table().embedding_forward(
          {device_tokens.data(), table_values, nullptr, y, shape.batch, shape.seq, hidden},
          stream());
      EXPECT_TRUE(same_bits(y.floats(), expected));
      HostValues by_reference{dtype, filled(std::ssize(expected), kNan)};
      HostValues host_table{dtype, wte};
      reference::embedding_forward({tokens.data(), host_table.view(), nullptr, by_reference.view(),
                                    shape.batch, shape.seq, hidden},
                                   Stream{});
      EXPECT_EQ(by_reference.bytes(), y.read());
    }
  }
}

// Some rows of a table: tokens of other rows give zeros and no gradients.
TEST_P(EmbeddingKernels, RowsOfATableGiveTheBitsOfTheirTokens) {
  const Shape shape{4, 200, 45, 7};  // runs longer than a warp adds
  const auto [batch, seq, hidden, vocab] = shape;
  const std::vector<std::int32_t> tokens = tokens_of(shape);
  const Floats wte = random_floats(vocab * hidden, 2), wpe = random_floats(seq * hidden, 3);
  const Floats dy = random_floats(batch * seq * hidden, 4);
  for (const Range rows : {Range{0, 7}, {2, 3}, {6, 1}, {4, 0}}) {
    const auto here = [&](std::int32_t token) { return token >= rows.first && token < rows.end(); };
    Floats expected;
    Floats gradient(static_cast<std::size_t>(rows.elems * hidden), 0.5F);
    for (std::int64_t at = 0; at < batch * seq; ++at) {
      const std::int32_t token = tokens[static_cast<std::size_t>(at)];
      for (std::int64_t h = 0; h < hidden; ++h) {
        const float position = wpe[static_cast<std::size_t>(at % seq * hidden + h)];
        const float vector = wte[static_cast<std::size_t>(token * hidden + h)];
        expected.push_back(here(token) ? vector + position : position);
        if (!here(token)) { continue; }
        gradient[static_cast<std::size_t>((token - rows.first) * hidden + h)] +=
            dy[static_cast<std::size_t>(at * hidden + h)];
      }
    }
    const auto begin = wte.begin() + rows.first * hidden;
    const Floats part(begin, begin + rows.elems * hidden);
    DeviceArray<std::int32_t> on_device{bench(), tokens};
    DeviceValues token_table{bench(), part, DType::fp32}, positions{bench(), wpe, DType::fp32};
    DeviceValues y{bench(), std::ssize(expected), DType::fp32}, from{bench(), dy, DType::fp32};
    DeviceValues to{bench(), filled(std::ssize(part), 0.5F), DType::fp32};
    table().embedding_forward(
        {on_device.data(), token_table, positions, y, batch, seq, hidden, rows.first, rows.elems},
        stream());
    table().embedding_backward(
        {on_device.data(), from, to, nullptr, batch, seq, hidden, rows.first, rows.elems},
        stream());
    EXPECT_TRUE(same_bits(y.floats(), expected)) << rows.first;
    EXPECT_TRUE(same_bits(to.floats(), gradient)) << rows.first;
    Floats by_reference(expected.size(), kNan), sums = filled(std::ssize(part), 0.5F);
    reference::embedding_forward({tokens.data(), part.data(), wpe.data(), by_reference.data(),
                                  batch, seq, hidden, rows.first, rows.elems},
                                 Stream{});
    reference::embedding_backward({tokens.data(), dy.data(), sums.data(), nullptr, batch, seq,
                                   hidden, rows.first, rows.elems},
                                  Stream{});
    EXPECT_TRUE(same_bits(by_reference, expected)) << rows.first;
    EXPECT_TRUE(same_bits(sums, gradient)) << rows.first;
  }
}

TEST_P(EmbeddingKernels, BackwardHasTheBitsOfTheReference) {
  for_all([&](const Shape& shape, DType dtype, DType tables, std::int64_t offset) {
    Gradients gradients{bench(), shape, dtype, tables, offset};
    gradients.run(table(), stream());
    gradients.expect_equal();
  });
}

// Positions begin anew with each document; a first_key out of range counts as the nearer end.
TEST_P(EmbeddingKernels, PositionsWithinDocumentsHaveTheBitsOfTheReference) {
  for_all([&](const Shape& shape, DType dtype, DType tables, std::int64_t offset) {
    const auto [batch, seq, hidden, vocab] = shape;
    const std::vector<std::int32_t> first_key = documents_of(shape);
    std::mt19937 generator{7};
    std::vector<std::int32_t> given = first_key;
    for (std::int64_t at = 0; at < batch * seq; ++at) {
      std::int32_t& first = given[static_cast<std::size_t>(at)];
      if (first == at % seq && generator() % 2 == 0) { first += 3; }
      if (first == 0 && generator() % 2 == 0) { first = -2; }
    }
    const std::vector<std::int32_t> tokens = tokens_of(shape);
    DeviceArray<std::int32_t> device_tokens{bench(), tokens}, device_first{bench(), given};
    HostValues wte{tables, random_floats(vocab * hidden, 2)};
    HostValues wpe{tables, random_floats((seq + 2) * hidden, 3)};
    HostValues expected{dtype, filled(batch * seq * hidden, kNan)};
    for (std::int64_t at = 0; at < batch * seq; ++at) {  // each token as the first of a sample
      const std::int64_t place = at % seq - first_key[static_cast<std::size_t>(at)];
      reference::embedding_forward(
          {&tokens[static_cast<std::size_t>(at)], wte.view(), wpe.view().at(place * hidden),
           expected.view().at(at * hidden), 1, 1, hidden},
          Stream{});
    }
    DeviceValues device_wte{bench(), wte.floats(), tables, offset};
    DeviceValues device_wpe{bench(), wpe.floats(), tables, offset};
    DeviceValues y{bench(), batch * seq * hidden, dtype, offset};
    EmbeddingForward forward{device_tokens.data(), device_wte, device_wpe, y, batch, seq, hidden};
    forward.first_key = device_first.data();
    table().embedding_forward(forward, stream());
    EXPECT_EQ(y.read(), expected.bytes());

    Gradients gradients{bench(), shape, dtype, tables, offset};
    gradients.first_key = given;
    gradients.device_first = device_first.data();
    gradients.run(table(), stream());
    gradients.expect_equal();
  });
}

TEST_P(EmbeddingKernels, FrozenTablesGetNoGradient) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const bool of_tokens : {false, true}) {
      for (const bool of_positions : {false, true}) {
        Gradients gradients{bench(), {3, 9, 40, 7}, dtype, DType::fp32, 0};
        const Bytes tokens_before = gradients.host_tokens.bytes();
        const Bytes positions_before = gradients.host_positions.bytes();
        gradients.run(table(), stream(), of_tokens, of_positions);
        gradients.expect_equal();
        EXPECT_EQ(gradients.dtokens.read() == tokens_before, !of_tokens);
        EXPECT_EQ(gradients.dpositions.read() == positions_before, !of_positions);
      }
    }
  }
}

// More tokens than the workspace can sort at once: still added in order.
TEST_P(EmbeddingKernels, TokensThatAreSortedInPiecesAreAddedInOrder) {
  const SmallWorkspace small{bench(), std::size_t{1} << 18U};
  const Shape shape{3, 7000, 2, 9};
  for (const bool packed : {false, true}) {
    Gradients gradients{bench(), shape, DType::fp32, DType::fp32, 0};
    const std::vector<std::int32_t> first_key = documents_of(shape);
    DeviceArray<std::int32_t> on_device{bench(), first_key};
    if (packed) {
      gradients.first_key = first_key;
      gradients.device_first = on_device.data();
    }
    gradients.run(table(), stream());
    gradients.expect_equal();
  }
}

}  // namespace
}  // namespace tessera::kernels::embedding_test
