#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "lipgrad/commands.h"
#include "lipgrad/sweep_models.h"
#include "lipgrad/sweep_session.h"

namespace lipgrad::cli {
namespace {

// Every setting of `train` is an option here, for one value or several.
void add_axes(CLI::App& command, const std::shared_ptr<SweepOptions>& o) {
  command.option_defaults()->group("Axes: one value, or several with commas between");
  const auto add = [&](const std::string& name, const std::string& about) {
    return command.add_option_function<std::string>(
        "--" + name, [o, name](const std::string& text) { o->values.emplace_back(name, text); },
        about);
  };
  const std::string models = fmt::format("{}", fmt::join(sweep_models(), ","));
  add("model", "Model of graphs or of images")->type_name("TEXT:{" + models + "}");
  std::set<std::string> known{"help", "model", seed_axis};
  for_each_train_command([&](const CLI::App& settings) {
    for (const CLI::Option* option : settings.get_options()) {
      if (option->get_lnames().empty() || option->get_items_expected_max() == 0) continue;
      const std::string name = option->get_lnames().front();
      if (!known.insert(name).second) continue;
      const std::string about =
          name == "preset" ? "Preset of `lipgrad train`" : option->get_description();
      add(name, about)->type_name(option->get_type_name());
    }
  });
  command.option_defaults()->group("Options");
}

}  // namespace

void add_sweep(CLI::App& app, int& exit) {
  auto o = std::make_shared<SweepOptions>();
  CLI::App* command = app.add_subcommand(
      "sweep", "Train a grid of configurations; tables and figures of what they come to");
  std::vector<std::string> names;
  std::string footer = "Grids that have names:\n";
  for (const auto& [name, about] : sweep_presets()) {
    names.push_back(name);
    footer += fmt::format("  {}: {}\n", name, about);
  }
  footer +=
      "A grid file has lines such as `layers = [2, 5]`, `lr = 0.01`, `seeds = 3`, `choose = "
      "[\"layers\"]`,\nand sections [method.NAME] of settings that go together.";
  command->add_option("grid", o->preset, "A grid that has a name, see below")
      ->check(CLI::IsMember(names));
  command->add_option("--config", o->config, "TOML file of a grid, see below");
  command->add_option("--out", o->out,
                      "Directory for runs and results; the same command goes on where it stopped");
  command->add_flag("--quick", o->quick, "A thinned grid: under half an hour on two cores");
  command
      ->add_option("--protocol", o->protocol,
                   "Training of the paper's grids: as it trains at depth, or the paper's own")
      ->check(CLI::IsMember({"contrast", "paper"}))
      ->capture_default_str();
  command->add_option("--methods", o->methods, "Only these methods of the grid: GAT,GAT-Lip");
  command->add_option("--seeds", o->seeds, "How many, or a list: 0,1,2");
  command->add_option("--choose", o->choose,
                      "Axes whose best value is chosen on validation: layers,lr");
  command->add_option("--jobs", o->jobs, "Runs at a time [one a thread; one on a CUDA device]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}));
  add_device(*command, o->device);
  command->add_option("--checkpoint-every", o->checkpoint_every, "Epochs between checkpoints")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--keep", o->keep, "Keep the checkpoints of finished runs");
  command->add_flag("--dry-run", o->dry_run, "Print the runs and about how long they take");
  command->add_flag("--figures-only", o->figures_only,
                    "Write results and figures of the runs that are there, and run nothing");
  command->add_flag("--quiet", o->quiet, "No progress");
  add_axes(*command, o);
  command->footer(footer);
  command->callback([o, &exit] { exit = Sweep(*o).run(); });
}

}  // namespace lipgrad::cli
