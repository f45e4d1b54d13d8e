"""The pages for people who come from OpenPifPaf and DL-Art-School: complete, and every key and command is real."""

import importlib
import re
import shlex
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from documented_commands import COMMAND, module_called

from figura.base.error_collector import alternatives, is_schema, locate
from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml, read_yaml
from figura.recipe.load import check_recipe
from figura.recipe.overrides import overridden
from figura.recipe.schema import Recipe
from figura.recipe.types import LOSS, NETWORK, SCHEDULE, build
from models.pose.scenes import KINDS

ROOT = Path(__file__).parents[1]
PATHS = {"openpifpaf": ROOT / "docs/coming_from/openpifpaf.md", "dl_art_school": ROOT / "docs/dl_art_school.md"}
PAGES = {name: path.read_text() for name, path in PATHS.items()}
RECIPES = [
    Path("params.yaml"),
    *sorted(path.relative_to(ROOT) for path in (ROOT / "recipes").rglob("*.yaml")),
]
WHOLE = {"openpifpaf": "openpifpaf_shufflenetv2k16", "dl_art_school": "esrgan_x4_gan"}
SECTIONS = "|".join(Recipe.model_fields)
KEY = rf"((?:{SECTIONS})(?:\.(?:\w+|<\w+>))+)"

OPENPIFPAF = """
--basenet --checkpoint --head-consolidation --cross-talk --no-download-progress --cf4-dropout --cf4-no-inplace-ops
--cf3-dropout --cf3-no-inplace-ops --minimum-deployment-target
--shufflenetv2k-input-conv2-stride --shufflenetv2k-input-conv2-outchannels --shufflenetv2k-stage4-dilation
--shufflenetv2k-kernel --shufflenetv2k-conv5-as-stage --shufflenetv2k-instance-norm --shufflenetv2k-group-norm
--shufflenetv2k-leaky-relu --resnet-pool0-stride --resnet-input-conv-stride --resnet-input-conv2-stride
--resnet-block5-dilation --resnet-remove-last-block --resnet-no-pretrain
--lambdas --component-lambdas --auto-tune-mtl --auto-tune-mtl-variance --task-sparsity-weight --b-scale --scale-log
--scale-soft-clamp --regression-soft-clamp --focal-alpha --focal-gamma --bce-soft-clamp --bce-background-clamp
--loss-prescale --background-weight --bce-min --focal-detach --no-focal-clamp --bce-total-soft-clamp --regression-loss
--r-smooth --laplace-soft-clamp
--epochs --train-batches --val-batches --clip-grad-norm --clip-grad-value --log-interval --val-interval --stride-apply
--fix-batch-norm --ema --profile -o --output --disable-cuda --ddp --local_rank --no-sync-batchnorm
--cif-side-length --caf-min-size --caf-fixed-size --caf-aspect-ratio --encoder-no-suppress-selfhidden
--encoder-suppress-invisible --encoder-suppress-collision
--lr --momentum --no-nesterov --weight-decay --adam --amsgrad --beta2 --adam-eps --lr-warm-up-start-epoch
--lr-warm-up-epochs --lr-warm-up-factor --lr-decay --lr-decay-epochs --lr-decay-factor --lr-warm-restarts
--lr-warm-restart-duration
--dataset --dataset-weights --batch-size --loader-workers --cocokp-train-annotations --cocokp-val-annotations
--cocokp-train-image-dir --cocokp-val-image-dir --cocodet-train-annotations --cocodet-val-annotations
--cocodet-train-image-dir --cocodet-val-image-dir
--cocokp-square-edge --cocokp-with-dense --cocokp-extended-scale --cocokp-orientation-invariant --cocokp-blur
--cocokp-no-augmentation --cocokp-rescale-images --cocokp-upsample --cocokp-min-kp-anns --cocokp-bmin
--cocodet-square-edge --cocodet-extended-scale --cocodet-orientation-invariant --cocodet-blur --cocodet-no-augmentation
--cocodet-rescale-images --cocodet-upsample
--quiet --debug --log-stats --debug-indices --debug-images --version --dir_data --dir_out --sample
--decoder --decoder-workers --profile-decoder --seed-threshold --instance-threshold --keypoint-threshold
--keypoint-threshold-rel --cif-th --caf-th --force-complete-pose --force-complete-caf-th --nms-before-force-complete
--greedy --connection-method --no-reverse-match --dense-connections --cifcaf-block-joints
--ablation-cifseeds-no-rescore --ablation-cifseeds-nms --ablation-caf-no-rescore --ablation-independent-kp
--posesimilarity-distance --posesimilarity-oks-inflate --trackingpose-track-recovery --trackingpose-single-seed
--tr-single-pose-threshold --tr-multi-pose-threshold --tr-multi-pose-n --tr-minimum-threshold
--watch --eval-loader-warmup --eval-n-images --eval-no-skip-epoch0 --eval-no-skip-existing --eval-write-predictions
--write-predictions --eval-show-final-image --eval-show-final-ground-truth --coco-eval-long-edge
--coco-eval-orientation-invariant --coco-eval-extended-scale --coco-no-eval-annotation-filter
--cocokp-eval-testdev2017 --cocokp-eval-test2017
--glob --long-edge --precise-rescaling --image-output --json-output
--source --scale --start-frame --skip-frames --max-frames --video-output --video-fps --video-dpi --horizontal-flip
--show --save-all --image-width --image-height --image-dpi-factor --image-min-dpi --show-file-extension --white-overlay
--show-box --show-joint-scales --show-joint-confidences --show-decoding-order --show-frontier-order
--show-only-decoded-connections --textbox-alpha --text-color --font-size --monocolor-connections --line-width
--skeleton-solid-threshold
--label --first-epoch --no-share-y --eval-suffix --show-mtl-sigmas
--outfile --input-width --input-height --simplify --check --checkpoints
--iccv2019-ablation --v012-ablation-1 --v012-ablation-2 --v012-ablation-3 --v012-ablation-4
--animal-* --apollo-* --crowdpose-* --nuscenes-* --wholebody-* --posetrack-* --posetrack2017-* --posetrack2018-*
--cocokpst-max-shift --cifar10-root-dir --cifar10-download --crowdpose-index --crowdpose-eval-test
--start-msec --crop --rotate --separate-debug-ax
"""
DL_ART_SCHOOL = """
name model distortion suffix scale gpu_ids fp16 grad_scaler_enabled checkpointing_enabled start_step force_start_step
training_data_encountered use_tb_logger wandb wandb_project_name wandb_run_name wandb_progress_use_raw_steps
keep_optimizer_states_on_cpu ddp_find_unused_parameters ddp_static_graph dist_backend
automatically_scale_grads_for_fanin automatically_scale_base_layer_size
automatically_recover_nan_by_reverting_n_saves amp_opt_level experiments anomaly_detection cuda_benchmarking_enabled
colab_mode ssh_server ssh_username ssh_password remote_path image_normalization_range
niter warmup_iter mega_batch_factor mod_batch_factor mod_batch_factor_every
mod_batch_factor_also_disable_checkpointing ema_enabled ema_rate ema_on_cpu default_lr_scheme manual_seed val_freq
val_freq_megasamples sort_key auto_collate batch_size_optimizer
strict_load pretrain_model_<network> pretrain_base_path_<network> resume_state optimizer_reset alt_path
type which_model which_model_G which_model_D trainable wandb_debug DO_NOT_TRAIN DO_NOT_TRAIN_UNTIL PARAM_GROUP
update_for_step after_backward before_step after_step get_grad_norm_parameter_groups visual_dbg get_debug_values
provide_ema network_loaded
training optimizer_params after before every requires injectors losses step_outputs clip_grad_eps check_grads_for_nan
loss_log_buffer generator_outputs lr weight_decay beta1 beta2 momentum lars_coefficient param_groups
adam adamw mu_adamw adamw_zero lamb lars sgd lion use_8bit min_total_loss custom_optimizer_step
MultiStepLR gen_lr_steps lr_gamma restarts restart_weights clear_state force_lr warmup_steps ProgressiveMultiStepLR
progressive_starts CosineAnnealingLR_Restart T_period warmup eta_min
generator discriminator direct scheduled_scalar add_noise noise constant stylegan2_noise grey interpolate image_patch
random_crop margin_removal concatenate for_each step_interleave indices_extractor squeeze pad decompose_dimension
recompose_dimension normalize denormalize frequency_bin_normalize sr_diffs mix_and_label batch_rotate random_shift
multi_frame_combiner gaussian_diffusion gaussian_diffusion_inference method no_accum no_grad args
pix sr_pix annealing_termination_step cross_entropy distillation feature interpreted_feature generator_gan
discriminator_gan geometric translational recursive recurrent for_element stylegan2_divergence stylegan2_pathlen
teco_gan teco_pingpong nv_tacotron2_loss real_scale real_offset report_metrics rescale swap_channels load_path
min_loss gradient_penalty detach_real detach_fake input_alteration_index generator_output_index max_spread weight
fixed linear_decay sinusoidal initial_weight lower_bound upper_weight lower_weight period
style_transfer sr_fid fid_for_structural_nets sr_style_transfer sr_diffusion_fid flow_gaussian_nll
single_point_pair_contrastive_eval mel wer audio_diffusion_fid music_diffusion_fid for
batch_size n_workers pin_memory mode imagefolder single_image_extensible multi_frame_extensible paired_frame fullimage
multiscale stylegan2 torch_dataset byol_dataset byol_structured_dataset random_aug_wrapper zipfile random_dataset
combined paths weights target_size force_multiple skip_lq disable_flip rgb_n1_to_1 force_square
center_crop_hq_sz fixed_parameters all_image_color_jitter fetch_alt_image fetch_alt_tiled_image labeler
num_corrupts_per_image random_corruptions fixed_corruptions cosine_bias corruption_blur_scale corrupt_before_downsize
print_freq save_checkpoint_freq visuals visual_debug_rate reverse_n1_to_1 reverse_imagenet_norm is_mel_spectrogram
recurrent_visual_indices number_of_checkpoints_to_save number_of_states_to_save
video_file frame_rate start_at_seconds end_at_seconds vertical_splits frames_per_mini_vid minivid_crf
mini_vid_output_folder minivid_start_no generator_img_index recurrent_mode recurrent_hr_generator
in out constant_type like scale_factor size mode patch_size resize dim_in dim_out margin random_shift_max dim subtype
aslist multiple cutoff_dim reverse_shape reverse_permute shift stats_file lq hq diff include_combined out_labels
mix_probability latent_dim flow in_hq out_hq subinjectors
beta_schedule schedule_name num_diffusion_timesteps diffusion_args model_mean_type model_var_type loss_type sampler_type
model_input_keys out_key_vb_loss out_key_x_start extra_model_output_keys deterministic_timesteps_every
deterministic_sampler_expected_batch_size causal_mode causal_slope_range preprocess_fn output_batch_size
output_scale_factor respaced_timestep_spacing use_ddim undo_n1_to_1 use_ema noise_type multiple_requirement
real fake criterion base_loss exp key inverted logits labels mask teacher student temperature which_model_F gan_type
overlap recursive_depth downsample_factor recurrent_weights index gen_loss gradient_penalty_frequency logistic w_styles
gen max_full_batches poll_parameters recalculate_directions_steps
batches_per_eval image_size dataset real_fid_path gen_index embedding_generator diffusion_params fid_batch_size
quantity similar_set_args dissimilar_set_args
"""


def rows(page: str) -> list[list[str]]:
    """Return the cells of each row of the tables of a page, outside of blocks of code."""
    text = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def quoted(text: str) -> list[str]:
    """Return what stands between backticks."""
    return [span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", text)]


def spans(page: str) -> list[str]:
    """Return what stands between backticks in the tables of a page."""
    return [span for row in rows(page) for cell in row for span in quoted(cell)]


@cache
def content(file: Path) -> dict[str, Any]:
    """Return what a params file of the repository says."""
    return read_yaml(ROOT / file)


def pages(find: Any) -> list[Any]:
    """Return (page, one) for everything that `find` finds in each page, once."""
    return [(page, one) for page in PAGES for one in dict.fromkeys(find(page))]


@pytest.mark.parametrize("page", PAGES)
def test_every_row_has_an_answer_and_an_example_or_a_reason(page):
    assert len(rows(page)) > 150
    assert [row for row in rows(page) if len(row) != 3 or not all(row)] == []


@pytest.mark.parametrize(("page", "options"), [("openpifpaf", OPENPIFPAF), ("dl_art_school", DL_ART_SCHOOL)])
def test_every_option_of_the_other_system_has_a_row(page, options):
    words = {word for there, *_ in rows(page) for span in quoted(there) for word in re.split(r"[ ,:.]+", span)}
    assert len(options.split()) > 180
    assert [one for one in options.split() if one not in words] == []


def settings(page: str) -> list[str]:
    """Return the examples `key=value` of a page."""
    return [span for span in spans(page) if re.match(rf"{KEY}=.", span)]


def fits(file: Path, setting: str) -> bool:
    """Whether a recipe of the repository passes all checks with one key changed, and what it changes can be built."""
    section, name, *_ = setting.split(".")
    try:
        recipe = check_recipe(overridden(content(file), [setting], [section]), file)
        if section == "networks":
            build(recipe.networks[name], NETWORK, name, file)
    except UserError:
        return False
    return encodes(recipe)


def encodes(recipe: Recipe) -> bool:
    """Whether the encoders of all heads know their arguments; they are built only where there is data."""
    entries = [*recipe.data.train.values(), *recipe.data.validation.values(), *recipe.evaluate.data.values()]
    heads = [head for entry in entries for head in entry.arguments.get("heads", {}).items()]
    return all(
        set(one) - {"kind"} <= {field.name for field in fields(KINDS[one.get("kind", name)])} for name, one in heads
    )


@pytest.mark.parametrize(("page", "setting"), pages(settings))
def test_a_setting_makes_a_recipe(page, setting):
    """Of the recipe whose translation the page shows, or of another one that has such a key."""
    first = Path(f"recipes/published/{WHOLE[page]}.yaml")
    assert any(fits(file, setting) for file in [first, *(one for one in RECIPES if one != first)]), setting


def test_there_are_many_settings():
    assert len(settings("openpifpaf")) > 90
    assert len(settings("dl_art_school")) > 50


def in_schema(key: list[str]) -> bool:
    """Whether a dotted key is a field of the schema."""
    place = locate(Recipe, key)
    names = {info.alias or name for schema in place.schemas for name, info in schema.model_fields.items()}
    return key[-1] in names or (not place.schemas and below_map(Recipe, key))


def below_map(annotation: Any, key: list[str]) -> bool:
    """Whether the last name of a key is that of an entry, which people choose: `evaluate.modes.poses`."""
    kinds = alternatives(annotation)
    for name in key:
        found: list[Any] = []
        for kind in kinds:
            if is_schema(kind):
                field = {info.alias or one: info for one, info in kind.model_fields.items()}.get(name)
                found += alternatives(field.annotation) if field else []
            elif getattr(kind, "__origin__", None) is dict:
                found += alternatives(kind.__args__[1])
        kinds = found
    return bool(kinds)


def in_recipe(value: Any, key: list[str]) -> bool:
    """Whether a params file has a dotted key, in which `<name>` is any name."""
    if not key:
        return True
    if not isinstance(value, dict):
        return False
    entries = value.values() if key[0].startswith("<") else [value[key[0]]] if key[0] in value else []
    return any(in_recipe(entry, key[1:]) for entry in entries)


def keys(page: str) -> list[str]:
    """Return the dotted keys of a page, without values."""
    found = [re.fullmatch(KEY, span) for span in spans(page)]
    return [match[1] for match in found if match and not re.search(r"\.(py|yaml|json|md|csv)$", match[1])]


@pytest.mark.parametrize(("page", "key"), pages(keys))
def test_a_key_exists_in_the_schema_or_in_a_recipe(page, key):
    names = key.split(".")
    assert in_schema(names) or any(in_recipe(content(file), names) for file in RECIPES), f"{page}: {key}"


def test_a_key_that_does_not_exist_is_found():
    assert not in_schema(["train", "ema", "rate"])
    assert not in_schema(["steps", "<step>", "clip_norm"])
    assert in_schema(["steps", "<step>", "clip"])
    for wrong in ("networks.network.heads.cif.upsampl=2", "data.common.heads.cif.bmi=1", "train.ema.rate=0.9"):
        assert not fits(Path("recipes/pose.yaml"), wrong)


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the first line of each block of YAML without its marks, and the block."""
    return re.findall(r"^```yaml ?([^\n]*)\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


def merged(base: Any, change: Any) -> Any:
    """Return a mapping with another written over it; what has a type replaces all of an entry."""
    if isinstance(base, dict) and isinstance(change, dict) and "type" not in change:
        return {**base, **{key: merged(base.get(key), value) for key, value in change.items()}}
    return change


@pytest.mark.parametrize(("page", "block"), pages(blocks))
def test_a_block_of_yaml_is_a_recipe_or_the_other_system_s(page, block):
    title, text = block
    if title:
        assert yaml.safe_load(text)["steps"].keys() == {"G", "D"}  # as DL-Art-School reads it: YAML 1.1
        return
    (file,) = re.findall(r"\A# in (\S+)$", text, re.MULTILINE)
    check_recipe(merged(content(Path(file)), parse_yaml(text, page)), Path(file))


@pytest.mark.parametrize("page", PAGES)
def test_the_whole_recipe_is_the_published_one(page):
    path = f"recipes/published/{WHOLE[page]}.yaml"
    assert f"this is `{path}`" in PAGES[page]


def commands(page: str) -> list[str]:
    """Return the commands of figura's own modules in a page."""
    return [span for span in spans(page) if re.match(COMMAND, span)]


@pytest.mark.parametrize(("page", "command"), pages(commands))
def test_a_command_takes_these_options(page, command, capsys):
    name, words = module_called(shlex.split(command))
    module = importlib.import_module(name)
    if not hasattr(module, "main"):
        module = importlib.import_module(f"{name}.__main__")
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert [word for word in words if word.startswith("--") and word not in said] == []
    recipes = [word for word in words if word.endswith(".yaml")]
    assert [word for word in recipes if not (ROOT / word).exists()] == []


def test_learning_rates_are_those_of_the_flags():
    """The guide's schedule in its own formulas: N batches an epoch, --lr-decay 220 240 --lr-decay-epochs=10."""
    schedule = build(recipe_of("openpifpaf").steps["network"].lr_schedule, SCHEDULE, "lr_schedule")
    batches = 56_599 // 32
    steps = np.arange(250 * batches, step=97)
    warm_up = np.minimum(0.001 ** np.maximum(1 - steps / batches, 0), 1)
    decay = np.prod([0.1 ** np.clip((steps - epoch * batches) / (10 * batches), 0, 1) for epoch in (220, 240)], axis=0)
    np.testing.assert_allclose([schedule(int(step)) for step in steps], warm_up * decay, rtol=1e-12)
    assert recipe_of("openpifpaf").train.steps == 250 * batches


def test_adversarial_losses_of_the_whole_recipe_are_those_of_the_configuration():
    """DL-Art-School's `ragan`: the generator has half the sum of two cross-entropies, the discriminator all of it."""
    real, fake = np.random.default_rng(3).normal(size=(2, 5, 1))

    def cross_entropy(logits: np.ndarray, label: int) -> float:
        return float(np.logaddexp(0, -logits if label else logits).mean())

    def total(step: str, **logits: np.ndarray) -> float:
        entries = {name: one for name, one in recipe_of("dl_art_school").losses.items() if "Adversarial" in one.type}
        value = 0.0
        for name, entry in entries.items():
            if entry.step == step:
                inputs = {role: torch.from_numpy(logits[source]) for role, source in entry.inputs.items()}
                value += entry.weight * float(build(entry, LOSS, name)(**inputs).mean())
        return value

    theirs = next(yaml.safe_load(text)["steps"] for title, text in blocks("dl_art_school") if title)
    differences = real - fake.mean(), fake - real.mean()
    generator = (cross_entropy(differences[0], 0) + cross_entropy(differences[1], 1)) / 2
    discriminator = cross_entropy(differences[0], 1) + cross_entropy(differences[1], 0)
    weights = {name: step["losses"]["gan"]["weight"] for name, step in theirs.items()}
    assert total("G", judged_real=real, judged_fake=fake) == pytest.approx(weights["G"] * generator, rel=1e-6)
    assert total("D", real_logits=real, fake_logits=fake) == pytest.approx(weights["D"] * discriminator, rel=1e-6)


def recipe_of(page: str) -> Recipe:
    """Return the recipe that a page shows whole."""
    file = Path(f"recipes/published/{WHOLE[page]}.yaml")
    return check_recipe(content(file), file)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    slugs = {
        re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", PAGES[page], re.MULTILINE)
    }
    for file, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGES[page]):
        assert (PATHS[page].parent / file).exists(), file
        assert file or anchor in slugs, anchor
