#include "pipelines/logit_scorer.h"

#include <algorithm>
#include <cmath>

#include "base/assign.h"

namespace situ {

Result<std::unique_ptr<LogitScorer>> LogitScorer::create(const ModelFolder& folder, const FolderTokenizer* tokenizer,
                                                         int64_t most, int64_t vocabulary) {
  std::unique_ptr<LogitScorer> s(new LogitScorer(folder, tokenizer));
  SITU_RETURN_IF_ERROR(assign(&s->files_, read_sentence_files(folder.modules)).or_code(Code::kBadFile));
  const std::string modules = (folder.modules / "modules.json").string();
  if (!s->files_.logit_score)
    return Status::error(Code::kInvalidArgument, folder.model_file.string() + ": the model scores no pairs of texts: " +
                                                     modules + " names no module LogitScore");
  const LogitScore& ids = *s->files_.logit_score;
  for (const int64_t id : {ids.true_id, ids.false_id.value_or(0)})
    if (id >= vocabulary)
      return Status::error(Code::kBadFile, modules + ": LogitScore takes the logit of token " + std::to_string(id) +
                                               ", and the model has " + std::to_string(vocabulary) + " logits");
  SITU_RETURN_IF_ERROR(
      assign(&s->activation_, score_activation(s->files_, folder.folder, 1, &s->note_)).or_code(Code::kBadFile));
  s->most_ = most;
  if (s->files_.max_seq_length > 0)
    s->most_ = std::min(most, s->files_.max_seq_length);
  else if (tokenizer && tokenizer->config().model_max_length > 0)
    s->most_ = std::min(most, tokenizer->config().model_max_length);
  return s;
}

Result<PairScores> LogitScorer::score(std::span<const TextPair> pairs, const EmbedOptions& options,
                                      const LogitsOf& logits_of) const {
  SITU_RETURN_IF_ERROR(TextInputs::check_pairs(folder_, tokenizer_, pairs, options));
  SITU_TAKE(prompt, TextInputs::prompt_of(folder_, files_, options));
  const TextInputs reader(folder_, *tokenizer_, files_, most_);
  PairScores made;
  made.labels = 1;
  if (!note_.empty()) made.notes.push_back(note_);
  SITU_TAKE(read, reader.tokens_of_pairs(pairs, prompt, &made));
  const LogitScore& ids = *files_.logit_score;
  for (size_t i = 0; i < read.size(); ++i) {
    const Result<std::span<const float>> logits = logits_of(read[i].ids);
    if (!logits.is_ok()) return logits.status().with_context("pair " + std::to_string(i + 1));
    std::vector<float> row{(*logits)[static_cast<size_t>(ids.true_id)]};
    if (ids.false_id) row[0] -= (*logits)[static_cast<size_t>(*ids.false_id)];
    if (!std::isfinite(row[0]))
      return Status::error(Code::kInternal, folder_.model_file.string() + ": the score of pair " +
                                                std::to_string(i + 1) + " is " + std::to_string(row[0]) +
                                                ": the model's numbers overflow");
    apply_activation(activation_, row);
    made.rows.push_back(std::move(row));
  }
  return made;
}

}  // namespace situ
