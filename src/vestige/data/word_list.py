"""Words for phrases that read like English.

Some hundreds of words by part of speech, written for this project, common ones and rare ones,
so that news, forum and encyclopaedia corpora find some in each of their frequency quintiles.
Nouns are plural and verbs are in the simple past, so that any of them agree. Words that make
an insult of a harmless neighbour are left out.
"""


def _words(listing: str) -> tuple[str, ...]:
    return tuple(listing.split())


NOUNS = _words(
    """
    accountants actors adults advertisers agencies agents aliens amounts analysts ancestors
    angels animals answers apples applicants architects artists assassinations associates
    astronauts auctions audits aunts authors backpacks bags bakers bands bankers banks bargains
    barrels batteries beasts bees bells belts bikes bills birds biscuits blankets boats bodies
    books boots borders bottles branches bridges briefs brokers brothers buckets budgets
    builders buildings burgers buses buyers cakes calculators cameras camps candidates candles
    captains cards careers carpets carriers cars castles cats ceilings centers chains chairs
    charts chemists chickens churches cities citizens classes clerks clients clocks clothes
    clouds clubs coaches coats collectors colleges columns comedians companies competitors
    computers conferences consumers contracts cookies cousins coworkers cows crackers creatures
    critics crops crowds crystals customers dancers daughters dealers dentists designers desks
    diamonds diplomats directors documents dogs doors drivers drugs ducks economists editors
    eggs elephants employees employers enemies engineers executives experts eyes families
    farmers farms fathers features fees fences festivals films fires flags flowers folks foods
    foreigners forests foundations friends fruits funds gallons games gardens genes ghosts
    giants gifts glasses goats governments governors grades graduates grains grandparents grants
    groups guards guests guitars guns guys hats headaches headlines heroes hills hobbies
    holidays homes horses hospitals hotels hours houses hunters ideas images inches incidents
    insects instructors instruments insurers investors islands issues jackets jeans jewels jobs
    journalists judges jurors kings kitchens knights labels laborers labs lakes landlords
    laptops lawyers leaders lemons lenses lessons letters librarians lights lions lists lyrics
    machines magazines magnets managers maps masters matters meals measures meetings members
    memories men merchants messages metals ministers mirrors missions models moms monkeys months
    mothers moths motors mountains mugs museums musicians names nations neighborhoods neighbors
    nephews notebooks notes novels nurses oceans offices officials onions operators oranges
    orders owners paintings pancakes papers parents partners parts passengers patents patients
    peanuts pencils people pets phones photos physicians pianos pies pigs pilots pirates pizzas
    places planes plants players plays poems poets policies politicians powers prices priests
    princes printers prisoners problems producers products professors profits programs projects
    prophets providers pumpkins pupils puzzles questions rabbits races readers rebels receipts
    recipes recruiters refrigerators regulators reporters reports requests residents resources
    restaurants results rewards rings rivals rivers roads robots rockets rocks rooms roots ropes
    rules sailors sales sandwiches schools scientists screens seats secrets senators services
    sheep shelves ships shirts shoes shops shows siblings sisters soldiers songs sons sources
    squirrels stars states statues stocks stones stores stories strangers students suits
    supermarkets suppliers surgeons systems tables tailors takeovers taxes teachers teams
    telescopes tenants theaters thieves things threads tickets tigers tires tomatoes tools
    tourists towels towns toys traders travelers trees trips trucks tutors umbrellas uncles
    units universities vampires vehicles vendors veterans victims videos viewers villages
    visitors voices voters wages waiters walls warriors weapons websites wheels windows wizards
    wolves woods words workers works writers years
    """
)

VERBS = _words(
    """
    abandoned absorbed accepted accused achieved acquired added adjusted admired admitted
    adopted affected aided allowed altered amazed amended announced answered applauded approved
    arranged arrested asked assembled assigned assisted attacked attended avoided awarded banned
    battled became began believed besieged blamed blocked boosted borrowed bothered bought broke
    brought brushed built buried burned calculated called canceled captured carried caught
    caused celebrated challenged changed charged chased checked chose claimed cleaned closed
    coated collected combined compared completed concealed condemned confused considered
    contacted contained contested controlled convinced cooked copied corrected counted covered
    crashed created criticized crossed cut damaged debated deceived decided decorated defeated
    defended delayed deleted delivered demanded denied denounced described designed destroyed
    detected developed discarded discouraged discovered discussed disliked displayed disputed
    distributed doubled dragged drank drew dropped drove earned eliminated embraced employed
    encouraged endorsed enjoyed entered escaped established evaluated examined exchanged
    excluded expanded expected explained explored exposed feared fed filled finished fired fixed
    flooded followed forced forgot formed found freed funded gained gathered gave got grabbed
    greeted grew guaranteed guided handled hated heard held helped hid highlighted hired hit
    hosted identified ignored illustrated imported imposed impressed improved included increased
    infected influenced informed inherited inserted inspected inspired interviewed introduced
    invented invited issued joined judged kept kicked knew launched learned leased left licensed
    liked limited linked lived located lost loved lowered made mailed managed marketed matched
    measured mentioned met missed mixed modified monitored moved named needed negotiated
    nominated noticed obtained offered opened operated opposed ordered organized outlined owned
    packed painted passed photographed picked placed planned planted played polished posted
    praised predicted preferred prepared prescribed presented prevented printed produced
    promised promoted proposed protected proved provided published pulled pumped punished
    purchased pursued pushed put questioned quoted raised ran rated reached read received
    recognized recommended recorded recovered recruited reduced reflected regretted rejected
    released remembered removed renamed rented repaired repeated replaced reported requested
    required rescued researched resisted restored retained returned revealed reversed reviewed
    rewarded ruined sampled saved saw scared scheduled searched secured seized selected sent
    served settled shaped shared shifted shipped shook showed signed skipped sold solved spent
    sponsored stole stopped stored strengthened studied submitted sued suggested supplied
    supported surprised surrounded surveyed suspected swallowed switched tackled targeted taught
    tested thanked threatened threw told took touched tracked traded trained transformed treated
    tried trusted turned understood used valued viewed visited wanted warned washed wasted
    watched welcomed witnessed won worshipped wrote yanked
    """
)

ADVERBS = _words(
    """
    abruptly absolutely accidentally accurately actively actually additionally adequately
    aggressively already also always annually anxiously apparently automatically badly barely
    basically bitterly blindly boldly bravely briefly brutally busily calmly carefully
    carelessly casually cautiously certainly cheaply cheerfully clearly closely completely
    consistently constantly continually correctly cruelly curiously currently daily definitely
    deliberately desperately directly dramatically drastically eagerly easily effectively
    efficiently electronically elegantly especially eternally evenly eventually exactly
    exceptionally exclusively explicitly extensively extremely fairly faithfully fiercely
    finally firmly fluently foolishly formally formerly frankly freely frequently generally
    generously gently genuinely gladly gradually greatly grossly happily hardly harshly hastily
    heavily highly honestly hopefully hourly illegally immediately improperly inadvertently
    incorrectly increasingly indefinitely independently indirectly inevitably initially
    instantly intensely intentionally internally invariably jointly joyfully just kindly largely
    lately later lazily legally lightly literally locally loudly lovingly loyally mainly
    manually marginally merely mildly mistakenly modestly monthly morally mostly mutually
    mysteriously narrowly naturally nearly neatly nervously never nicely nonetheless normally
    notably noticeably obviously occasionally oddly officially often once only openly originally
    outright overly painfully partially patiently perfectly permanently personally politely
    poorly possibly potentially practically precisely presumably previously primarily privately
    probably profitably profoundly promptly properly proudly publicly purposely quickly quietly
    randomly rapidly rarely readily really reasonably recently recklessly regularly reluctantly
    remotely repeatedly reportedly roughly routinely sadly safely secretly seemingly seldom
    separately seriously severely shamelessly sharply shortly silently simply simultaneously
    sincerely slightly slowly smoothly socially softly solely somehow sometimes soon specially
    specifically steadily still strictly strongly subsequently substantially successfully
    suddenly sufficiently supposedly surely surprisingly swiftly technically temporarily
    tentatively thoroughly tightly together totally traditionally truly twice typically
    ultimately unanimously undoubtedly unexpectedly unfairly unfortunately universally
    unknowingly unsuccessfully usually utterly vaguely vastly vigorously virtually visibly
    voluntarily weekly wholly widely wildly willingly wisely wrongly yearly
    """
)

ADJECTIVES = _words(
    """
    able absent absurd academic acceptable active actual additional adequate advanced affluent
    affordable aggressive alive alternative amazing ambitious ancient angry annoying annual
    anonymous anxious appropriate arrogant artificial attractive available average awesome awful
    awkward bad basic beautiful best better big bitter bizarre bland bloody blue bold boring
    brave brief bright brilliant broad broken busy calm capable careful careless casual
    catastrophic central ceramic certain cheap cheerful chief classic classical clean clear
    clever close clumsy cold colorful comfortable common compact competent competitive complex
    concerned confident conservative constant contemporary contentious convenient cool corrupt
    costly courageous crazy creative critical crucial cruel cultural curious current cute daily
    dangerous dark dead deadly dear decent deep defective desirable different difficult digital
    distant distinct domestic double dramatic drastic dry due dull durable dusty eager early
    eastern easy elderly electric elegant eligible emotional empty endless energetic enormous
    entire equal essential eternal ethical evil excellent exclusive exotic expensive
    experimental external extra extreme fair faithful fake false familiar famous fancy fast
    fatal favorite federal few fiery final financial fine firm flawed flexible foreign formal
    former fragile fraudulent free frequent fresh friendly frozen full funny fuzzy generic
    generous gentle genuine giant glad global golden good gorgeous grand gray great greedy green
    gross guilty handy happy harmful harmless harsh healthy heavy helpful hidden high historic
    hollow honest horrible hostile hot huge humble hungry identical illegal imaginary immense
    important impossible impressive incompetent incredible independent indirect individual
    industrial inexpensive informal initial innocent intense interesting internal invisible
    ironic jealous joint junior keen key kind large last late lazy legal lengthy liberal likely
    little local logical lonely long loose loud lovely loyal lucky luxury mad magic main major
    mandatory many massive mature meaningful mechanical medical middle mighty mild military
    minor mobile modern modest moral more most muddy musical mutual mysterious narrow nasty
    national natural neat necessary negative nervous neutral new next nice noisy normal northern
    nuclear numerous obscure obvious odd official old online open opposite optimistic orange
    ordinary original other outdoor own painful pale parental partial past patient perfect
    permanent personal physical pink plain pleasant political poor popular positive possible
    powerful practical precious precise predictable present pretty previous primary prior
    private productive professional proper proud public pure purple quick quiet radical random
    rapid rare ready real realistic reasonable recent regional regular relative reliable
    reluctant remarkable remote rich ridiculous risky rocky romantic rotten rough round royal
    rude rural rusty sad safe satisfactory scary scientific secret secure senior sensitive
    separate serious severe shallow sharp shiny short sick significant silent silly silver
    similar simple single skeptical sleepy slight sloppy slow small smart smooth social soft
    solid sophisticated sorry southern special specific spicy square stable standard steady
    steep sticky straight strange strategic strict strong stubborn stupid subtle successful
    sudden sufficient suitable sunny super sure surgical suspicious sweet sympathetic tactical
    talented tall technical temporary terrible theoretical thick thin tight tiny tired top total
    tough toxic traditional tremendous tricky tropical true typical unable unavailable
    uncomfortable unfair unhappy unique universal unknown unlikely unstable unusual upper upset
    urban urgent useful useless usual vague valid valuable various vast venerable viable vicious
    violent virtual visible visual vital voluntary vulnerable warm wary weak wealthy weird
    western wet whole wicked wide wild willful willing wise wonderful wooden worried worse worth
    worthless worthy wrong young
    """
)

WORDS_BY_ROLE = {
    "noun": NOUNS,
    "verb": VERBS,
    "adverb": ADVERBS,
    "adjective": ADJECTIVES,
}

TEMPLATES: dict[int, tuple[tuple[str, ...], ...]] = {
    2: (("noun", "verb"), ("adjective", "noun")),
    3: (("noun", "verb", "noun"), ("noun", "adverb", "verb")),
    4: (("noun", "verb", "adjective", "noun"), ("noun", "adverb", "verb", "noun")),
    5: (
        ("noun", "adverb", "verb", "adjective", "noun"),
        ("noun", "verb", "adverb", "adjective", "noun"),
        ("adjective", "noun", "adverb", "verb", "noun"),
        ("adjective", "noun", "verb", "adjective", "noun"),
    ),
    6: (
        ("adjective", "noun", "adverb", "verb", "adjective", "noun"),
        ("adjective", "noun", "verb", "adverb", "adjective", "noun"),
    ),
}
