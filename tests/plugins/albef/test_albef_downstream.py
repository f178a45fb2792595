"""ALBEF's fine-tunings against its released code.

The numbers below are what salesforce/ALBEF (commit b9727e4) gives in float64 on the weights and inputs of
reference/vlmo_golden.md, section 4, with every draw replaced by the likeliest choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.plugins.albef.reference import MODEL, Numbered, batch, close, gradients, loaded, uniform
from vlcli.data.collate import collate_texts
from vlcli.engine.training_module import TrainingModule
from vlcli.errors import DataError
from vlcli.nn import Recorder, saliency
from vlcli.nn.generation import Generation, generate, rank
from vlcli.objectives.negatives import ids_of

RETRIEVAL = [
    {"name": "momentum-contrast", "width": 12, "queue": 24, "clamp": False, "same": "image"},
    {"name": "contrast-matching", "pool": "own", "sampler": "best"},
]
MATCH = [[1.9859381409345553, 0.6212150719587392], [1.8028106110765694, 0.5415829029233216],
         [1.6870319039624795, 0.6606700828547918]]  # fmt: skip
CAM = [
    [0.00026025630528469834, 0.00017610730198326088, 0.0019439410049447534, 0.0027669610702445325,
     0.0002563731877653206, 0.000345954662563144, 0.00024817436578851107, 0.00021897878924750748,
     0.0016158958704507453],
    [0.00020833443531516574, 0.00021722547974767237, 0.001906997348546913, 0.0028512737677811196,
     0.00038384457519122255, 0.0003211611973553996, 0.00018822511152832066, 0.0002538027979730213,
     0.0019984368815532567],
    [0.00011032789128103738, 0.00024481187370309484, 0.0020559069058185345, 0.002944613444393176,
     0.0003709183261485246, 0.00019764151854831987, 0.0001648640447149443, 0.00014343650354338102,
     0.0018495799098778725],
]  # fmt: skip
"""Of the second cross layer, the mean over heads and over all places of the sentence, padding counted as 0."""
BEST_TWO = [[0.6212150719587392, -100.0, 0.638322525863322], [0.5406639453465188, -100.0, 0.5511556154079512],
            [0.6399048926845229, -100.0, 0.6606700828547918]]  # fmt: skip
"""Match scores of each sentence with the two pictures nearest to it, others -100."""
CANDIDATES = ("6", "10 11", "12", "13 14", "6 15")
RANKED = [[0, 3, 1]] * 3
CHANCES = [[0.5435132390200647, 0.2753176846420573, 0.18116907633787796],
           [0.4639256821419563, 0.3215273110931566, 0.2145470067648871],
           [0.5986030691863633, 0.22624471187315495, 0.17515221894048183]]  # fmt: skip
VE = [[-0.24270724555481316, -0.031072062042359308, 0.020669953189915782],
      [-0.1901124983567445, -0.03440730464816989, 0.002666826750572962],
      [-0.1888679702740194, 0.011471463924736372, -0.03507756043596491]]  # fmt: skip
NLVR = [[-0.06705033510929953, -0.1349263868960851], [-0.033174861066261184, -0.25719566667890864],
        [-0.08389794954244181, -0.09258765040578604]]  # fmt: skip


def stepped(module: TrainingModule, given: Any, name: str, loss: float, norm: float) -> None:
    """The loss, and the norm of all gradients."""
    result = module.train()(given)
    mean = result.losses[name]
    assert float(mean.total / mean.count) == pytest.approx(loss, abs=1e-9)
    result.total.backward()
    assert float(np.sqrt(sum(n**2 for n in gradients(module).values()))) == pytest.approx(norm, rel=1e-9)
    module.eval()


def test_retrieval_knows_who_belongs_together() -> None:
    module = loaded(MODEL, RETRIEVAL).train()
    contrast = module.objectives["momentum-contrast"]
    contrast.image_ids[1] = ids_of(["7"], torch.tensor([0]))[0]
    contrast.filled.fill_(24)
    result = module(batch(keys=["5", "7", "5"]))
    found = {name: float(mean.total / mean.count) for name, mean in result.losses.items()}
    # Released, the shares of right answers are float32, which costs 4e-7.
    assert found["momentum-contrast"] == pytest.approx(17.83656121537046, abs=1e-6)
    assert found["momentum-contrast"] == pytest.approx(17.836560788870866, abs=1e-9)
    assert found["contrast-matching"] == pytest.approx(0.6613590218175387, abs=1e-9)
    result.total.backward()
    norm = float(np.sqrt(sum(n**2 for n in gradients(module).values())))
    assert norm == pytest.approx(227.2460404262079, rel=1e-7)
    module.close_step()
    assert torch.equal(contrast.image_ids[:3], ids_of(["5", "7", "5"], torch.arange(3)))


def test_matching_scores_and_grad_cam() -> None:
    module = loaded(MODEL, RETRIEVAL).eval()
    # The reference had taken one momentum step and no optimizer step: the model is as it was.
    step = module.step(batch(keys=["5", "7", "5"]), record=Recorder(gradients=True))
    logits = module.objectives["contrast-matching"].predict(step)["logits"]
    close(logits, MATCH)
    maps = saliency.word_maps(step, logits[:, 1], layer="cross.1.*")
    counted = maps.maps * maps.words[..., None]
    close(counted.mean(1)[:, 1:], CAM)


def test_candidates_are_ranked_by_the_match_score() -> None:
    module = loaded(MODEL, RETRIEVAL).eval()
    step = module.step(batch())
    vectors = module.objectives["momentum-contrast"].predict(step)
    near = (vectors["text_embedding"] @ vectors["image_embedding"].T).topk(2, 1).indices
    rows = torch.arange(3).repeat_interleave(2)
    scores = module.objectives["contrast-matching"].head(step.fuse_rows(rows, near.flatten()).pooled)[:, 1]
    found = torch.full((3, 3), -100.0, dtype=torch.float64).scatter(1, near, scores.reshape(3, 2))
    close(found, BEST_TWO)


@pytest.mark.parametrize(("alpha", "loss", "norm"), [(0.0, 8.874696199572936, 18.579906862541225),
                                                     (0.4, 8.420114404813056, 14.603356231847382)])  # fmt: skip
def test_answers_are_said_and_ranked(alpha: float, loss: float, norm: float) -> None:
    objectives = [{"name": "answer-generation", "distill": alpha}]
    module = loaded({**MODEL, "decoder_layers": 6}, objectives)
    module.objectives["answer-generation"].setup([], Numbered(), None)
    people = [["6"] * 6 + ["10 11"] * 4, ["12"] * 10, None]
    given = batch(targets={"raw_answers": people, "answers": [None, None, {"6": 1.0}]})
    stepped(module, given, "answer-generation", loss, norm)
    seen = module.step(given).fused().text
    candidates = collate_texts([Numbered().encode(answer) for answer in CANDIDATES])
    places, chances = rank(module.model, seen, candidates, 3, block=4)
    assert places.tolist() == RANKED
    close(chances, CHANCES)
    whole = rank(module.model, seen, candidates, 99)[0]
    assert whole.shape == (3, 5)


@pytest.mark.parametrize(("alpha", "loss", "norm"), [(0.0, 1.0793417198457018, 0.7389991591197559),
                                                     (0.4, 1.0945919702975493, 0.5596820957720378)])  # fmt: skip
def test_entailment(alpha: float, loss: float, norm: float) -> None:
    module = loaded(MODEL, [{"name": "distilled-classification", "classes": 3, "distill": alpha}])
    given = batch(targets={"label": torch.tensor([2, 0, 1])})
    stepped(module, given, "distilled-classification", loss, norm)
    close(module.objectives["distilled-classification"].predict(module.step(given))["logits"], VE)


@pytest.mark.parametrize(("alpha", "loss", "norm"), [(0.0, 0.670853109889999, 1.6196305045957133),
                                                     (0.4, 0.6775798582263178, 0.8469764160755816)])  # fmt: skip
def test_two_pictures(alpha: float, loss: float, norm: float) -> None:
    model = {**MODEL, "text_layers": 6, "cross_layers": 6, "images": 2}
    module = loaded(model, [{"name": "distilled-classification", "classes": 2, "images": 2, "distill": alpha}])
    given = batch(second=uniform("input.image_1", (3, 3, 48, 48)), targets={"label": torch.tensor([1, 0, 1])})
    stepped(module, given, "distilled-classification", loss, norm)
    close(module.objectives["distilled-classification"].predict(module.step(given))["logits"], NLVR)


def test_word_by_word_is_the_whole_at_once() -> None:
    module = loaded({**MODEL, "decoder_layers": 3}, [{"name": "answer-generation"}]).eval()
    seen = module.step(batch()).fused().text
    said = torch.tensor([[2, 7, 8, 9], [2, 5, 5, 5], [2, 9, 1, 3]])
    text = collate_texts([Numbered().encode(" ".join(map(str, row[1:]))) for row in said.tolist()])
    whole = module.model.next_words(module.model.decode(text, seen))
    cache = module.model.start(seen)
    for place in range(said.shape[1]):
        scores, cache = module.model.step(said[:, place], cache)
        close(scores, whole[:, place].detach().numpy())
    begun = module.model.step(torch.full((3,), 2), module.model.start(seen, text.select(torch.arange(3))))[0]
    close(begun, whole[:, 3].detach().numpy())
    found = generate(module.model, seen, Generation("beam", beams=2, max_length=4))
    assert found.ids.shape[:2] == (3, 1)


def test_texts_of_several_lengths_do_not_go_on_together() -> None:
    module = loaded({**MODEL, "decoder_layers": 1}, [{"name": "answer-generation"}]).eval()
    given = batch().clean
    with pytest.raises(DataError, match="equally long"):
        module.model.start(module.model.encode_image(given.images), given.text)
