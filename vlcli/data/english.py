"""Tags English caption words with the part of speech that they most often have in captions, by lists and endings."""

from collections.abc import Iterable
from functools import cache

GROUPS = ("NN", "VB", "JJ", "IN", "DT", "PRP", "other")

_CLOSED = {
    "DT": "a an the this that these those some any no each every all both another either neither such",
    "PRP": "i you he she it we they me him her us them my your his its our their mine yours hers ours theirs "
    "myself yourself himself herself itself ourselves themselves someone something somebody anyone anything "
    "everyone everything nobody nothing",
    "IN": "about above across after against along alongside amid among amongst around as aside at atop before behind "
    "below beneath beside besides between beyond by despite during except for from if in inside into like near of "
    "on onto outside over past per since than through throughout till toward towards under underneath unlike until "
    "upon via while whilst with within without because although though whether",
    "other": "and or but nor so yet not n't to there here then now also too very just only still almost quite rather "
    "together apart away down up off out forward forwards backward backwards ahead again never always often "
    "well even maybe perhaps both partially nearly nearby alone where when why how what which who whom whose "
    "that can could may might must shall should will would zero one two three four five six seven eight nine ten "
    "eleven twelve twenty hundred first second third etc 's yes please",
}
_AUXILIARIES = "am is are was were be been being 's're do does did done doing have has had having"
# Only words that :func:`part_of_speech` would put into another group by their endings.
_VERBS = (
    "add admire appear approach arrange ask attach attempt bake bathe become begin bend bite brace bring browse build "
    "buy carry celebrate chase check chew choose clap close collect come compete connect consist contain converse "
    "cover crouch decorate depict dig dine discuss display eat enjoy enter examine extend feel find flow follow gaze "
    "get give glide go graze grab grow hang hear help hold hover include keep kneel know lay lead lean learn leap "
    "leave let lie listen look make meet need observe overlook peer perch perform play point pose pour prepare protect "
    "pull push put raise reach read receive relax remove ride say see seem sell serve show sing sit sleep sniff stand "
    "stare stay stop swim take talk teach tell throw try use wait want wear write"
)
_PAST = (
    "ate began bent bit blew bought broke brought built came caught chose cut dug drank drawn drew driven drove eaten "
    "fallen fed fell felt flew flown forgot found fought frozen gave given gone got gotten grew grown heard held "
    "hidden hit hung kept knelt laid lain leant leapt led left lit lost made meant met paid ran ridden risen rode said "
    "sang sat saw seen sent set shaken shone shook shot shown shut slept slid sold spent sprang spread stood stuck "
    "stung struck sung swam swept swum swung taken taught thought threw thrown told took torn upset went woken won "
    "wore worn wound woven written wrote"
)
_ADJECTIVES = (
    "able abandoned african aged airborne alive american ancient angry antique asian assorted bad bald bare bearded "
    "best better big bitten black blank bleak blonde blue blurred blurry bold bright broad broken brown burnt busy "
    "calm casual certain cheap chinese circular clean clear cloudy cluttered cold colored commercial common complete "
    "concrete cool cooked cozy cracked crowded curly curved cute daily damp dark dead deep dense different dim dirty "
    "distant double dry dull dusty early east eastern easy electric electronic elderly elegant empty enclosed european "
    "extra fake familiar fancy far fast fat female few fine firm flat floral fluffy foggy foreign formal framed free "
    "french fresh friendly frosted full funny furry fuzzy giant glad glazed gloomy golden good grand grassy gray great "
    "green grey grilled happy hard healthy heavy high hilly historic hot huge hungry icy important indian indoor "
    "industrial interesting italian japanese juicy large last late lazy leafy lengthy little lone lonely long loose "
    "loud low lower lush mad main major male many married mature medium messy metallic mid military miniature minor "
    "mixed modern more most muddy multicolored multiple muscular naked narrow nasty natural neat net new next nice "
    "noisy normal north northern nude odd old older open orange ordinary ornate other outdoor oval overcast overhead "
    "own painted pale parallel partial perfect personal pink plain pleasant pointy polar polite poor popular pretty "
    "primary private professional proper proud purple quick quiet rainy rare raw ready real rectangular red regular "
    "remote residential rich right ripe rocky romantic rotten rough round rounded rural rustic rusty sad safe same "
    "sandy scenic seated separate shaggy shallow sharp shiny short shy sick silly similar simple single skinny sleek "
    "sleepy sliced slender slight slim slow small smooth snowy sober soft solid solitary sour south southern spare "
    "special spicy spotted square standard steady steamed steep sticky stiff stormy straight strange striped strong "
    "stuffed suburban sunlit sunny sweet tall tan tasty teal thick thin tidy tight tiled tilted tiny tired top tough "
    "ugly unique unusual upper upright urban vacant vast vegetarian victorian vintage violet warm weird west western "
    "wet white whole wide wild windy wise wooded wooden woolen wrong yellow young younger several"
)
_NOUNS = (
    "building bedding boring bunting ceiling clothing coating crossing dressing drawing dwelling earring evening "
    "filling frosting icing landing lightning lighting lining living morning offspring opening painting parking "
    "pudding railing rigging sibling sling spring string stuffing swing thing topping viewing wedding wiring dining "
    "shed sled vegetable stable archive detective native executive relative family belly jelly bully butterfly "
    "dragonfly assembly supply italy anomaly monopoly"
)
_ADJECTIVE_ENDINGS = ("ous", "ful", "less", "ish", "ive", "ical", "able", "ible", "esque", "colored", "coloured")
_AND_OTHERS = "next other same several many few more most own 's n't"
FUNCTION_WORDS = frozenset(" ".join((*_CLOSED.values(), _AUXILIARIES, _AND_OTHERS)).split())
"""Words that carry grammar and not what is seen: articles, pronouns, prepositions, conjunctions, auxiliaries."""


@cache
def _table() -> dict[str, str]:
    table = dict.fromkeys(_ADJECTIVES.split(), "JJ")
    for verb in _VERBS.split():
        table |= dict.fromkeys((verb, _third_person(verb)), "VB")
    table |= dict.fromkeys(_PAST.split(), "VB") | dict.fromkeys(_NOUNS.split(), "NN")
    for group in ("other", "IN", "DT", "PRP"):
        table |= dict.fromkeys(_CLOSED[group].split(), group)
    return table | dict.fromkeys(_AUXILIARIES.split(), "VB") | {"past": "JJ"}


def _third_person(verb: str) -> str:
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if verb[-1] == "y" and verb[-2] not in "aeiou" else f"{verb}s"


def part_of_speech(word: str) -> str:
    """Return the group of a lower-case word, one of :data:`GROUPS`."""
    if word in _table():
        return _table()[word]
    if (len(word) > 4 and word.endswith("ing")) or (len(word) > 3 and word.endswith("ed") and word[-3:] != "eed"):
        return "VB"
    if word.isdigit() or (len(word) > 4 and word.endswith("ly")):
        return "other"
    return "JJ" if word.endswith(_ADJECTIVE_ENDINGS) and len(word) > 5 else "NN"


# Words that most English sentences have one of, and other languages rarely.
_OF_SENTENCES = frozenset(
    {"the", "of", "and", "are", "what", "which", "who", "whose", "where", "when", "why", "how", "many", "there", "this"}
    | {"that", "these", "does", "did", "with", "from", "on", "it", "they", "you", "has", "have", "color", "colour"}
)


def is_english(sentences: Iterable[str]) -> bool:
    """Whether at least half of some sentences hold one of thirty frequent English words."""
    hits = [not _OF_SENTENCES.isdisjoint(sentence.lower().replace("?", " ").split()) for sentence in sentences]
    return 2 * sum(hits) >= len(hits)
