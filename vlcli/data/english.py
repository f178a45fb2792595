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
_VERBS = (
    "add admire appear approach arrange ask attach attempt bake bathe be become begin bend bite bow brace bring "
    "browse brush build buy carry celebrate chase check chew choose clap climb close collect come compete connect "
    "consist contain converse cover cross crouch cut decorate depict dig dine discuss display do dress drive eat "
    "enjoy enter examine extend feed feature feel fill find float flow follow gather gaze get give glide go graze "
    "grab grow hang have hear help hike hit hold hover hug include jump keep kick kiss kneel know lay lead lean "
    "learn leap leave let lie lift listen live look lounge love make meet mount move need observe open overlook "
    "pass peer perch perform pet pick place play point pose pour prepare present protect pull push put race raise "
    "reach read receive relax remove rest ride run say see seem sell serve show sing sit skateboard sleep smile "
    "sniff stand stare stay stop swim swing take talk taste teach tell throw tie touch travel try turn use wait "
    "walk want watch wear work wrap write"
)
_PAST = (
    "ate began bent bit blew bought broke brought built came caught chose cut dug did drank drawn drew driven "
    "drove eaten fallen fed fell felt flew flown forgot found fought frozen gave given gone got gotten grew grown "
    "had heard held hidden hit hung kept knelt laid lain leant leapt led left lit lost made meant met paid put "
    "ran ridden risen rode said sang sat saw seen sent set shaken shone shook shot shown shut slept slid sold "
    "spent sprang spread stood stuck stung struck sung swam swept swum swung taken taught thought threw thrown "
    "told took torn upset went woken won wore worn wound woven written wrote"
)
# Verbs whose plain form, in captions, is as a rule a noun or adjective; their -ing and -ed forms are verbs.
_MOSTLY_NOUNS = (
    "brush climb cross cut dress drive feature feed fill float gather hike hug jump kick kiss lift live love open "
    "mount move pass pet pick place present race rest run skateboard smile swing taste tie touch travel turn walk "
    "watch work wrap lounge bow hit"
)
_ADJECTIVES = (
    "able abandoned adult african aged airborne alive american ancient angry antique asian assorted attractive "
    "back bad bald bare bearded beautiful best better big bitten black blank bleak blonde blue blurred blurry "
    "bold bottom brick bright broad broken brown burnt busy calm careful casual certain cheap cheerful chinese "
    "circular clean clear close cloudy cluttered cold colored colorful colourful comfortable commercial common "
    "complete concrete cool cooked cozy cracked crowded curious curly curved cute daily damp dark dead decorative "
    "deep delicious dense different dim dirty distant double dry dull dusty early east eastern easy electric "
    "electrical electronic elderly elegant empty enclosed english european expensive extra fake familiar famous "
    "fancy far fast fat female few fine firm flat floral fluffy foggy foreign formal framed free french fresh "
    "friendly front frosted frozen full funny furry fuzzy garden giant glad glazed gloomy golden good grand "
    "grassy gray great green grey grilled happy hard healthy heavy high hilly historic hot huge hungry icy "
    "identical important indian indoor industrial inflatable interesting iron italian japanese juicy large last "
    "late lazy leafy leather left lengthy light little lone lonely long loose lots loud low lower lush mad main "
    "major male many married massive mature medium messy metal metallic mid middle military miniature minor mixed "
    "modern more most muddy multicolored multiple muscular naked narrow nasty natural neat net new next nice "
    "noisy normal north northern nude numerous nylon odd old older only open orange ordinary ornate other outdoor "
    "oval overcast overhead own painted pale parallel partial perfect personal pink plain plastic playful "
    "pleasant pointy polar polite poor popular portable pretty primary private professional proper proud public "
    "purple quick quiet rainy rare raw ready real rectangular red regular remote residential rich right ripe "
    "rocky romantic rotten rough round rounded rural rustic rusty sad safe same sandy scenic seated second "
    "separate serious shaggy shallow sharp shiny short shirtless shy sick silly silver similar simple single "
    "skinny sleek sleepy sliced slender slight slim slow small smooth snowy sober soft solid solitary sour south "
    "southern spacious spare special spicy spotted square stainless standard steady steamed steel steep sticky "
    "stiff still stone stormy straight strange striped strong stuffed stylish suburban sunlit sunny sweet tall "
    "tan tasty teal thick thin tidy tight tiled tilted tiny tired top tough toy tropical typical ugly under "
    "unique unusual upper upright urban useful vacant valuable various vast vegetarian victorian vintage violet "
    "visible warm weird west western wet white whole wide wild windy winter wise wooded wooden woolen wrong "
    "yellow young younger"
)
_NOT_ADJECTIVES = (
    "back garden lots nylon iron winter steel stone leather toy second silver metal brick front middle bottom light "
    "adult"
)
_NOUNS = (
    "building buildings bedding being boring bunting ceiling ceilings clothing coating crossing crossings "
    "dressing drawing drawings dwelling earring earrings evening everything evenings filling frosting icing "
    "intersection king kings landing lightning lighting lining living morning nothing offspring opening painting "
    "paintings parking pudding railing railings ring rings rigging sibling siblings sitting-room sling something "
    "spring string strings stuffing swing swings thing things topping toppings viewing wedding weddings wing "
    "wings wiring dining frisbee bed beds shed sheds sled sleds seed seeds weed weeds reed reeds speed breed "
    "breeds steed media animal animals capital festival festivals hospital hospitals meal meals medal medals "
    "mural murals pedestal petal petals signal signals terminal metal metals cereal canal coral journal mammal "
    "royal sandal sandals pencil table tables vegetable vegetables cable cables bible stable stables automobile "
    "automobiles archive archives olive olives drive drives detective native natives executive clinic comic "
    "comics fabric fabrics garlic mechanic music picnic plastic public topic traffic attic ceramic graphic "
    "graphics mosaic relative relatives motorcycle cactus family fly belly jelly lily bully butterfly dragonfly "
    "assembly supply italy anomaly monopoly bus circus focus hippopotamus octopus virus campus"
)
_ADJECTIVE_ENDINGS = ("ous", "ful", "less", "ish", "ive", "ical", "able", "ible", "esque", "colored", "coloured")
FUNCTION_WORDS = frozenset(
    " ".join((_CLOSED["DT"], _CLOSED["PRP"], _CLOSED["IN"], _CLOSED["other"], _AUXILIARIES)).split()
) | frozenset(["next", "other", "same", "several", "many", "few", "more", "most", "own", "'s", "n't"])
"""Words that carry grammar and not what is seen: articles, pronouns, prepositions, conjunctions, auxiliaries."""


@cache
def _table() -> dict[str, str]:
    table = dict.fromkeys(("several", *_ADJECTIVES.split()), "JJ")
    for verb in _VERBS.split():
        table |= dict.fromkeys((verb, _third_person(verb)), "VB")
    for verb in _MOSTLY_NOUNS.split():
        table |= {verb: "JJ" if verb == "open" else "NN", _third_person(verb): "NN"}
    table |= dict.fromkeys(_PAST.split(), "VB") | dict.fromkeys(_NOT_ADJECTIVES.split(), "NN")
    table |= dict.fromkeys(_NOUNS.split(), "NN")
    for group in ("other", "IN", "DT", "PRP"):
        table |= dict.fromkeys(_CLOSED[group].split(), group)
    return table | dict.fromkeys(_AUXILIARIES.split(), "VB") | {"left": "VB", "past": "JJ", "back": "NN"}


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
    | {"that", "these", "does", "did", "with", "from", "on", "it", "they", "you", "has", "have"}
    | {"color", "colour"}
)


def is_english(sentences: Iterable[str]) -> bool:
    """Whether at least half of some sentences hold one of thirty frequent English words."""
    hits = [not _OF_SENTENCES.isdisjoint(sentence.lower().replace("?", " ").split()) for sentence in sentences]
    return 2 * sum(hits) >= len(hits)
