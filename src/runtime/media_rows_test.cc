// Positions of prompts with pictures, and what a sequence knows of their embeddings.
#include "runtime/media_rows.h"

#include <gtest/gtest.h>

#include "runtime/media_positions.h"

namespace situ {
namespace {

constexpr int64_t kImage = 500, kStart = 501;
constexpr PictureTokens kTokens{kImage};

std::vector<int64_t> prompt(std::vector<int64_t> before, int64_t rows, std::vector<int64_t> after) {
  before.insert(before.end(), static_cast<size_t>(rows), kImage);
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

TEST(MediaPositions, TextIsCountedBehindTheLargest) {
  const std::vector<int64_t> ids = prompt({1, 2}, 6, {3, 4}), grids{1, 4, 6};
  const auto positions = media_positions(ids, 0, kTokens, grids, 2);
  ASSERT_TRUE(positions.is_ok()) << positions.status().message();
  EXPECT_EQ(*positions, (std::vector<int64_t>{0, 1, 2, 2, 2, 2, 2, 2, 5, 6,     // time
                                              0, 1, 2, 2, 2, 3, 3, 3, 5, 6,     // height
                                              0, 1, 2, 3, 4, 2, 3, 4, 5, 6}));  // width
  const auto later = media_positions(ids, 7, kTokens, grids, 2);
  ASSERT_TRUE(later.is_ok());
  for (size_t i = 0; i < later->size(); ++i) EXPECT_EQ((*later)[i], (*positions)[i] + 7);
}

TEST(MediaPositions, FramesAndSeveralPictures) {
  const std::vector<int64_t> ids = prompt(prompt({1}, 2, {2}), 1, {}), grids{2, 2, 2, 1, 2, 2};
  const auto positions = media_positions(ids, 0, kTokens, grids, 2);
  ASSERT_TRUE(positions.is_ok()) << positions.status().message();
  EXPECT_EQ(*positions, (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 1, 3, 4, 0, 1, 1, 3, 4}));
}

// As get_rope_index counts them: by the tokens in front of pictures.
TEST(MediaPositions, PicturesWithoutAStartHavePositionsOfText) {
  const PictureTokens tokens{kImage, kStart};
  const std::vector<int64_t> bare = prompt({1, 2}, 2, {3}), grids{1, 2, 4};
  const auto text = media_positions(bare, 0, tokens, grids, 2);
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  EXPECT_EQ(*text, (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  const std::vector<int64_t> one = prompt(prompt({kStart}, 2, {2}), 2, {3}), two{1, 4, 2, 1, 4, 2};
  const auto first = media_positions(one, 0, tokens, two, 2);
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_EQ(*first, (std::vector<int64_t>{0, 1, 1, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1, 1, 3, 4, 5, 6}));
}

TEST(MediaPositions, GridsThatContradictTheTokens) {
  const std::vector<int64_t> ids = prompt({1, 2}, 6, {3, 4});
  const std::vector<std::vector<int64_t>> wrong{{},
                                                {1, 4, 4},
                                                {1, 4, 8},
                                                {1, 4, 6, 1, 2, 2},
                                                {1, 3, 8},
                                                {0, 4, 6},
                                                {-1, -4, 6},
                                                {1, 4, -6},
                                                {3, 2, 6},
                                                {int64_t{1} << 62, 4, 6},
                                                {1, int64_t{1} << 40, int64_t{1} << 40}};
  for (const auto& grids : wrong) {
    const auto positions = media_positions(ids, 0, kTokens, grids, 2);
    EXPECT_FALSE(positions.is_ok());
    EXPECT_FALSE(positions.is_ok() || positions.status().message().empty());
  }
}

std::shared_ptr<MediaRows> rows_at(int64_t base, std::vector<int64_t> ids, int64_t first, int64_t count) {
  auto rows = std::make_shared<MediaRows>();
  rows->base = base;
  rows->ids = std::move(ids);
  rows->first = first;
  rows->count = count;
  rows->rows = Tensor::allocate(DType::kF32, {count, 8});
  return rows;
}

TEST(SequenceMedia, RowsAndBorders) {
  SequenceMedia media;
  EXPECT_EQ(media.border(0), INT64_MAX);
  const auto rows = rows_at(10, prompt({1, 2}, 3, {4}), 12, 3);
  media.add(rows);
  EXPECT_EQ(media.row(11), nullptr);
  EXPECT_EQ(media.row(13), rows->rows.view().data + 32);
  EXPECT_EQ(media.row(15), nullptr);
  EXPECT_EQ(media.border(0), 10);
  EXPECT_EQ(media.border(10), 2);
  EXPECT_EQ(media.border(13), 2);
  EXPECT_EQ(media.border(15), 1);
  EXPECT_EQ(media.border(16), INT64_MAX);
}

TEST(SequenceMedia, OtherTokensAreText) {
  const std::vector<int64_t> ids = prompt({1, 2}, 3, {4});
  SequenceMedia media;
  media.add(rows_at(0, ids, 2, 3));
  media.match(0, ids);
  EXPECT_TRUE(media.holds(4));
  media.match(3, std::vector<int64_t>{kImage, kImage, 4, 9, 9});  // from a row on, and behind the prompt
  EXPECT_TRUE(media.holds(4));
  media.match(3, std::vector<int64_t>{kImage, 7});
  EXPECT_TRUE(media.holds(3));
  EXPECT_FALSE(media.holds(4));
  media.match(0, std::vector<int64_t>{5});
  EXPECT_TRUE(media.empty());
}

TEST(SequenceMedia, PositionsGoOnBehindPictures) {
  const std::vector<int64_t> ids = prompt({1, 2}, 6, {3, 4}), grids{1, 4, 6};
  auto rows = rows_at(0, ids, 2, 6);
  rows->positions = *media_positions(ids, 0, kTokens, grids, 2);
  rows->next_position = 7;
  SequenceMedia media;
  media.add(rows);
  int64_t stride = 0;
  EXPECT_EQ(media.positions(3, &stride)[2 * stride], -1 + 4);
  EXPECT_EQ(stride, 10);
  EXPECT_EQ(media.positions(10, &stride), nullptr);
  EXPECT_EQ(media.first_position(10), 7);
  EXPECT_EQ(media.first_position(13), 10);
  media.match(5, std::vector<int64_t>{9});  // text in the place of the last rows
  EXPECT_EQ(media.positions(5, &stride), nullptr);
  EXPECT_EQ(media.first_position(5), 5);  // behind width 4
  EXPECT_EQ(media.first_position(6), 6);
}

}  // namespace
}  // namespace situ
