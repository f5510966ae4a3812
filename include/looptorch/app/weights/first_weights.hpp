// SPDX-License-Identifier: MIT
// Adds `--weights FILE` and `--rename OLD=NEW`, which load a model's initial weights. The file may be this
// library's or PyTorch's. Compares all shapes before it copies any tensor, and prints which tensors came from
// the file.
//
//   app::add_weights_flags(line, options.weights);                                 // with the other flags
//   app::begin_from_weights(*model, options.weights, session.resumes());           // before the optimizer
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/app/weights/rename_rules.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/state/weights/load_weights.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::app {

/// The values of --weights and --rename.
struct FirstWeights {
  std::filesystem::path file;          ///< empty: begins with random weights
  std::vector<std::string> renames{};  ///< "OLD=NEW", see RenameRule
};

/// How a program's model takes the tensors of a file.
struct FirstWeightsOptions {
  /// Children of the model, such as "generator". A checkpoint may have a dictionary for each, under this name
  /// or with "_state_dict" appended; a folder may have a file for each (NAME.safetensors).
  std::vector<std::string> parts = {};
  /// Translates tensors under another project's names, without wrappers, in place. Returns a sentence for the
  /// report, or nothing for names of other projects.
  std::function<std::string(TensorMap&)> translate = {};
  /// Returns advice for weights of another shape, as the flags that say their size; may be empty.
  std::function<std::string(const TensorMap&)> advise = {};
};

/// The tensors that were loaded, and sentences for the user.
struct FirstWeightsReport {
  LoadReport names;
  std::vector<std::string> notes;  ///< sentences on what else a checkpoint has, and on its names
  /// True if the tensor of this name came from the file.
  [[nodiscard]] bool has(std::string_view name) const {
    return std::binary_search(names.loaded.begin(), names.loaded.end(), name);
  }
};

/// Adds --weights and --rename. `what` ends the help of the first.
inline void add_weights_flags(CommandLine& line, FirstWeights& weights, const std::string& what = "") {
  line.option("weights", "FILE", weights.file,
              "begins with the weights of FILE: safetensors, .pt, .pth or .bin of torch.save, or a folder; "
              "what is in it and not\nin the model, or in the model and not in it, is listed" +
                  (what.empty() ? "" : ". " + what));
  line.option(
      "rename", "OLD=NEW", weights.renames,
      "names in FILE that are others in the model, as layers.*.fc.*=blocks.*.up.*; may be given "
      "several times.\nA trailing dot is a beginning (encoder.=), and an empty NEW leaves tensors out "
      "(head.*=)");
}

/// Throws CommandLineError for rules that are no rules, and for --rename without --weights.
inline void check_weights_flags(const FirstWeights& weights) {
  if (weights.file.empty() && !weights.renames.empty())
    throw CommandLineError("--rename translates names of --weights FILE: give that, too");
  (void)rename_rules(weights.renames);
}

namespace detail {

/// The tensors of a file, and which keys of a checkpoint were read and which were not.
struct WeightFile {
  TensorMap tensors;
  std::vector<std::string> inside{}, beside{};
};

/// True for the usual keys of one of several models: "generator", "generator_state_dict", "netG", "G".
[[nodiscard]] inline bool is_key_of(std::string_view key, const std::string& part) {
  constexpr std::string_view kEnds[] = {"_state_dict", "_model", "_weights"};
  for (const std::string_view end : kEnds)
    if (key.ends_with(end)) key.remove_suffix(end.size());
  const std::string initial(1, static_cast<char>(std::toupper(static_cast<unsigned char>(part.front()))));
  return key == part || key == initial || key == "net" + initial || key == "net_" + initial;
}

inline void take_part(WeightFile& file, const std::string& part, const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) file.tensors.insert_or_assign(part + "." + name, tensor);
}

/// Returns the dictionaries of `parts` in a checkpoint; without any of them, the weights of one model.
[[nodiscard]] inline WeightFile weights_in(CheckpointParts all, const std::vector<std::string>& parts) {
  WeightFile file;
  for (const std::string& part : parts)
    for (const auto& [key, tensors] : all.within)
      if (is_key_of(key, part)) {
        take_part(file, part, tensors);
        file.inside.push_back(key);
      }
  if (!file.inside.empty()) {
    file.beside = all.beside(file.inside);
    return file;
  }
  auto whole = looptorch::detail::weights_of(std::move(all));
  file.tensors = std::move(whole.tensors), file.beside = std::move(whole.beside);
  if (!whole.inside.empty()) file.inside.push_back(std::move(whole.inside));
  return file;
}

[[nodiscard]] inline WeightFile read_weight_file(const std::filesystem::path& path,
                                                 const std::vector<std::string>& parts) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    if (path.extension() != ".json" && looptorch::detail::is_torch_checkpoint(InputFile(path)))
      return looptorch::detail::read_torch_file(
          path, /*mapped=*/true, [&](CheckpointParts all) { return weights_in(std::move(all), parts); });
    return {load_safetensors_any(path).tensors};
  }
  WeightFile file;
  for (const std::string& part : parts)
    if (const auto one = path / (part + ".safetensors"); std::filesystem::exists(one, ignored))
      take_part(file, part, load_safetensors(one).tensors);
  return file.tensors.empty() ? WeightFile{load_safetensors_any(path).tensors} : file;
}

/// Finds the names under which a file's tensors are loaded.
class RuledNames {
 public:
  explicit RuledNames(const FirstWeights& weights)
      : rules_(rename_rules(weights.renames)), where_(weights.file.string()) {}

  /// Returns the tensors without the names that Python's wrappers add, unless two names would collide, then
  /// renamed by the rules. Notes each name that changed. Throws UsageError if two tensors get one name, and
  /// for a rule that matches nothing.
  [[nodiscard]] TensorMap apply(const TensorMap& tensors, std::vector<RenamedTensor>& changed) const {
    const bool unwraps = unwrapped_are_apart(tensors);
    TensorMap loaded;
    std::map<std::string, std::string> sources;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors) {
      const auto plain = unwraps ? looptorch::detail::unwrapped_name(name) : name;
      names.push_back(plain);
      if (plain != name) names.push_back(name);
      const auto target = target_of(name, plain);
      if (target.empty()) continue;
      if (const auto [source, is_new] = sources.emplace(target, name); !is_new)
        throw UsageError(message(where_, ": both \"", source->second, "\" and \"", name,
                                 "\" would be loaded as \"", target, "\""));
      if (target != name) changed.push_back({name, target});
      loaded.emplace(target, tensor);
    }
    require_matches(std::move(names), rules_, where_);
    return loaded;
  }

 private:
  [[nodiscard]] static bool unwrapped_are_apart(const TensorMap& tensors) {
    std::set<std::string> plain;
    for (const auto& [name, tensor] : tensors) plain.insert(looptorch::detail::unwrapped_name(name));
    return plain.size() == tensors.size();
  }

  /// A rule may name the wrappers, too: `module.=`.
  [[nodiscard]] std::string target_of(const std::string& name, const std::string& plain) const {
    const auto matches = [&](const std::string& start) {
      return std::any_of(rules_.begin(), rules_.end(),
                         [&](const RenameRule& rule) { return rule.apply(start).has_value(); });
    };
    if (plain == name || matches(plain) || !matches(name)) return renamed(plain, rules_);
    return looptorch::detail::unwrapped_name(renamed(name, rules_));
  }

  std::vector<RenameRule> rules_;
  std::string where_;
};

/// Returns `"a", "b"`.
[[nodiscard]] inline std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "\"" : ", \"") + name + '"';
  return text;
}

/// Returns why weights do not fit, and what to type.
[[nodiscard]] inline std::string describe_misfit(const std::string& file, const LoadReport& report,
                                                 const std::string& advice) {
  if (report.unfit.empty()) {
    std::vector<std::string> missing = report.missing;
    const auto near = [&](const std::string& name) {
      return looptorch::detail::describe_missing(name, missing);
    };
    return message(file, ": none of its names is one of the model's",
                   looptorch::detail::list_names(report.surplus, "in the file", near), "; the model has ",
                   missing.empty() ? "none" : missing.front(), " and others: --rename OLD=NEW translates");
  }
  const auto as_is = [](const UnfitTensor& tensor) { return tensor.name + " " + tensor.why; };
  return message(
      file, ": does not fit the model, and nothing was loaded",
      looptorch::detail::list_names(report.unfit, "of another shape", as_is), ". ",
      advice.empty() ? message("--rename ", report.unfit.front().name, "= leaves one out") : advice);
}

}  // namespace detail

/// Loads the file of `weights` into the model, on its device and in its dtypes. Tensors that either side
/// lacks are allowed; the model keeps its own. Throws ModuleStateError, with the lists and near names, and
/// changes nothing, if a tensor has another shape or none has a place. Throws UsageError for a rule that
/// matches nothing and if two tensors get one name, and what load_weights throws for the file.
template <class Module>
FirstWeightsReport load_first_weights(const Module& model, const FirstWeights& weights,
                                      const FirstWeightsOptions& options = {}) {
  const auto where = weights.file.string();
  auto file = detail::read_weight_file(weights.file, options.parts);
  FirstWeightsReport report;
  std::vector<RenamedTensor> changed;
  auto tensors = detail::RuledNames(weights).apply(file.tensors, changed);
  if (options.translate)
    if (auto note = options.translate(tensors); !note.empty()) report.notes.push_back(std::move(note));
  try {
    report.names = load_weights(model, tensors, where, {.allow_missing = true, .allow_surplus = true});
  } catch (const ModuleStateError& error) {
    const auto advice = options.advise ? options.advise(tensors) : std::string();
    throw ModuleStateError(detail::describe_misfit(where, error.report, advice), error.report);
  }
  auto& all = report.names.renamed;
  all.insert(all.end(), changed.begin(), changed.end());
  if (!file.inside.empty()) {
    const auto keys = detail::quoted(file.inside);
    report.names.inside = keys.substr(1, keys.size() - 2);  // its text puts quotes around it
  }
  if (!file.beside.empty())
    report.notes.push_back(message("only weights carry over, not ", detail::quoted(file.beside),
                                   ": epochs, optimizer, learning rate and loss scale begin anew"));
  return report;
}

/// Loads a run's initial weights, and prints a line on what was loaded and a line a note. Loads nothing
/// without --weights, or if the run resumes: then prints that the weights are the snapshot's.
template <class Module>
FirstWeightsReport begin_from_weights(const Module& model, const FirstWeights& weights, bool resumes,
                                      const FirstWeightsOptions& options = {}) {
  if (weights.file.empty()) return {};
  if (resumes) {
    if (leads())
      std::cerr << "--weights is not read: the run resumes from a snapshot, with its weights" << std::endl;
    return {};
  }
  auto report = load_first_weights(model, weights, options);
  if (!leads()) return report;
  std::cout << weights.file.string() << ": " << report.names.text() << '\n';
  for (const auto& note : report.notes) std::cout << weights.file.string() << ": " << note << '\n';
  std::cout << std::flush;
  return report;
}

}  // namespace looptorch::app
