// Models of ../shared/models and sessions of them, for tests of steps.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "pipelines/llm.h"
#include "situ/model.h"

namespace situ::test {

using Tokens = std::vector<int64_t>;
using Rows = std::vector<std::vector<float>>;

class TinyModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* given = std::getenv("SITU_SHARED");
    path_ = std::filesystem::path(given ? given : SITU_SHARED_DEFAULT) / "models" / GetParam();
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is not there";
  }
  Model load(LoadOptions options) const {
    options.pack_cache = false;
    Result<Model> model = Model::load(path_.string(), options);
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    return std::move(*model);
  }
  std::filesystem::path path_;
};

inline std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '/' || c == '-') c = '_';
  return name;
}

inline Tokens some_tokens(int64_t count, int64_t seed) {
  Tokens ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(3 + (i * 37 + seed * 11) % 90);
  return ids;
}

// A session, behind a source where the model has an encoder, that `tokens` have been fed to.
inline Session session_of(Model& model, int64_t number, const Tokens& tokens = {}) {
  Result<Session> session =
      model.has_encoder() ? model.new_session(some_tokens(3 + number, number)) : model.new_session();
  EXPECT_TRUE(session.is_ok()) << session.status().message();
  EXPECT_TRUE(tokens.empty() || session->step(tokens).is_ok());
  return std::move(*session);
}

inline int64_t free_slots(Model& model) {
  const auto& engine = impl_of(model).in_place;
  return impl_of(model).between_steps([&] { return engine ? engine->states().free_slots() : 0; });
}

inline std::vector<float> copy_of(std::span<const float> row) { return {row.begin(), row.end()}; }

}  // namespace situ::test
